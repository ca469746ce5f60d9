"""The evaluated adapters of a store, the best first, as a table in Markdown: recipe, minutes, figures, commits."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS, EvalResults
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.models.adapter import KIND as ADAPTER
from mens_pipeline.models.adapter import MANIFEST, TrainingManifest
from mens_pipeline.models.base import read_object
from mens_pipeline.models.card import base_name, markdown_table, plain
from mens_pipeline.promotion.benchmark_gate import PIPELINE_COMMIT
from mens_pipeline.promotion.receipt import KIND, Receipt, read_results, receipt_in
from mens_pipeline.storage.store import MANIFEST as STORE_MANIFEST
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.recipe import PREFLIGHT

_HEAD: Final = (
    *("recipe", "base", "training", "held-out parse rate", "benchmark parse rate"),
    *("hidden tests, held out", "hidden tests, benchmark", "verdict"),
    *("commit of data", "commit of pipeline", "evaluated", "machine"),
)
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

    def row(self) -> tuple[str, ...]:
        """Return the cells of its line."""
        manifest, result, suites = self.manifest, self.manifest.result, self.results.adapter.suites
        origins = set(manifest.recipe_origins.values())
        named = sorted(origin.removeprefix(_NAMED) for origin in origins if origin.startswith(_NAMED))
        figures = (
            str(getattr(suites[suite], rate)) if suite in suites else "not asked"
            for rate in ("parse_rate", "test_rate")
            for suite in (Suite.HELDOUT, Suite.BENCHMARK)
        )
        date = datetime.fromtimestamp(self.receipt.timestamp_unix, UTC)
        steps = f"{result.num_steps} of " if result.num_steps != result.planned_steps else ""
        return (
            plain(", ".join(named) or manifest.preset or "none"),
            plain(base_name(manifest.base_model)),
            f"{steps}{result.planned_steps} steps, {result.seconds / 60:.1f} min",
            *figures,
            str(self.receipt.status),
            (manifest.vcs_sha or "none")[:12],
            self.commit[:12] if self.commit else "not on record",
            f"{date:%Y-%m-%d}",
            plain(self.machine),
        )


def leaderboard_of(store: ArtifactStore) -> str:
    """Return the table of a store; what has no figures, or those of another version, is counted below it.

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
    note = [f"\n{num_without} more verdicts without figures that this version reads."] if num_without else []
    return "\n".join([*markdown_table(_HEAD, (entry.row() for entry in entries)), *note]) + "\n"


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
