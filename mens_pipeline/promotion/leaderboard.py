"""The evaluated adapters of a store, the best first: as a table in Markdown, or as figures in CSV or Parquet."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.results import RESULTS, EvalResults
from mens_pipeline.evaluation.statistics import Rate
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.models.adapter import KIND as ADAPTER
from mens_pipeline.models.adapter import MANIFEST, TrainingManifest
from mens_pipeline.models.base import read_object
from mens_pipeline.models.card import base_name, markdown_table, plain
from mens_pipeline.promotion.receipt import KIND, PIPELINE_COMMIT, Receipt, read_results, receipt_in
from mens_pipeline.storage.store import MANIFEST as STORE_MANIFEST
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.recipe import PREFLIGHT

_RATES: Final = {
    "held-out parse rate": (Suite.HELDOUT, "parse_rate"),
    "benchmark parse rate": (Suite.BENCHMARK, "parse_rate"),
    "hidden tests, held out": (Suite.HELDOUT, "test_rate"),
    "hidden tests, benchmark": (Suite.BENCHMARK, "test_rate"),
}
_NAMED: Final = "recipe "
"""Before the name of a recipe, in the origin of a value."""
_MOST_BYTES: Final = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Entry:
    """An adapter with its newest verdict, the commit of the pipeline that came to it, and where it was trained."""

    manifest: TrainingManifest
    results: EvalResults
    receipt: Receipt
    commit: str | None
    machine: str

    @property
    def rank(self) -> tuple[float, float]:
        """What the best has most of: tasks whose hidden tests pass, then completions that parse."""
        overall = self.results.adapter.overall
        return overall.test_rate.value or 0.0, overall.parse_rate.value or 0.0

    @property
    def recipe(self) -> str:
        """The recipes that were named, else the preset."""
        origins = set(self.manifest.recipe_origins.values())
        named = sorted(origin.removeprefix(_NAMED) for origin in origins if origin.startswith(_NAMED))
        return ", ".join(named) or self.manifest.preset or "none"

    def find_rate(self, suite: Suite, name: str) -> Rate | None:
        """Return a rate of a suite; None if it was not asked."""
        suites = self.results.adapter.suites
        return getattr(suites[suite], name) if suite in suites else None

    @property
    def evaluated(self) -> datetime:
        """When the verdict was given."""
        return datetime.fromtimestamp(self.receipt.timestamp_unix, UTC)

    def cells(self) -> dict[str, str]:
        """Return its line for people, by the heads of the columns."""
        manifest, result = self.manifest, self.manifest.result
        steps = f"{result.num_steps} of " if result.num_steps != result.planned_steps else ""
        return {
            "recipe": plain(self.recipe),
            "base": plain(base_name(manifest.base_model)),
            "training": f"{steps}{result.planned_steps} steps, {result.seconds / 60:.1f} min",
            **{head: str(self.find_rate(*rate) or "not asked") for head, rate in _RATES.items()},
            "verdict": str(self.receipt.status),
            "commit of data": (manifest.vcs_sha or "none")[:12],
            "commit of pipeline": self.commit[:12] if self.commit else "not on record",
            "evaluated": f"{self.evaluated:%Y-%m-%d}",
            "machine": plain(self.machine),
        }

    def figures(self) -> dict[str, Any]:
        """Return its line for programs: numbers as numbers, shares from 0 to 1, None for what is not known."""
        result = self.manifest.result
        return {
            "adapter_sha256": self.results.subject.adapter_sha256,
            "recipe": self.recipe,
            "base": base_name(self.manifest.base_model),
            "steps": result.num_steps,
            "planned_steps": result.planned_steps,
            "minutes": result.seconds / 60,
            **{"_".join(rate): (found := self.find_rate(*rate)) and found.value for rate in _RATES.values()},
            "verdict": str(self.receipt.status),
            "commit_of_data": self.manifest.vcs_sha,
            "commit_of_pipeline": self.commit,
            "evaluated": self.evaluated,
            "machine": self.machine,
        }


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The entries of a store, the best first; `num_without` counts verdicts without figures that this version reads."""

    entries: tuple[Entry, ...]
    num_without: int

    def format(self) -> str:
        """Format it as a table in Markdown."""
        lines = [entry.cells() for entry in self.entries]
        table = markdown_table([*lines[0]], ([*line.values()] for line in lines)) if lines else ()
        note = [f"\n{self.num_without} more verdicts without figures that this version reads."]
        return "\n".join([*table, *(note if self.num_without else [])]) + "\n"

    def write(self, path: Path) -> None:
        """Write the figures into a file, as its ending says: `.csv` or `.parquet`.

        Raises:
            ConfigurationError: The ending is another, or the file cannot be written.
        """
        import pandas as pd

        frame = pd.DataFrame([entry.figures() for entry in self.entries])
        writers = {".csv": lambda: frame.to_csv(path, index=False), ".parquet": lambda: frame.to_parquet(path)}
        if path.suffix not in writers:
            raise ConfigurationError(f"{path}: ends with neither .csv nor .parquet. Name a file that does.")
        try:
            writers[path.suffix]()
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror or error}. Name a file that may be written.") from error


def read_leaderboard(store: ArtifactStore) -> Leaderboard:
    """Read the leaderboard of a store: each adapter with its newest verdict.

    Raises:
        RefusedError: Nothing was evaluated yet.
    """
    keys = sorted(path.parent.name for path in (store.root / KIND).glob(f"*/{STORE_MANIFEST}"))
    gates = [gate for key in keys if (gate := store.get(KIND, key)) is not None]
    if not gates:
        raise RefusedError(f"{store.root}: no adapter was evaluated yet. Run `mens run`.")
    newest: dict[str, Entry] = {}
    num_without = 0
    for gate in gates:
        entry = _read_entry(gate, store)
        if entry is None:
            num_without += 1
            continue
        sha256 = entry.results.subject.adapter_sha256
        if sha256 not in newest or newest[sha256].receipt.timestamp_unix <= entry.receipt.timestamp_unix:
            newest[sha256] = entry
    entries = sorted(newest.values(), key=lambda entry: entry.rank, reverse=True)
    return Leaderboard(tuple(entries), num_without)


def _read_entry(gate: Artifact, store: ArtifactStore) -> Entry | None:
    """Read a verdict; None where its documents are not all there, or another version wrote them."""
    results = read_results(gate.path / RESULTS)
    try:
        manifest, receipt = TrainingManifest.read(gate.path / MANIFEST), receipt_in(gate.path)
    except RefusedError:  # counted below the table
        return None
    if results is None:
        return None
    return Entry(manifest, results, receipt, gate.manifest.get(PIPELINE_COMMIT), _machine_of(gate, store))


def _machine_of(gate: Artifact, store: ArtifactStore) -> str:
    """Return the device that an adapter was trained on, as its preflight names it."""
    refs = [ref for ref in gate.parents if ref.kind == ADAPTER]
    adapter = store.get(ADAPTER, refs[0].key) if refs else None
    if adapter is None or not (adapter.path / PREFLIGHT).is_file():
        return "not on record"
    return str(read_object(adapter.path / PREFLIGHT, _MOST_BYTES, "Train the adapter again.")["device"]["name"])
