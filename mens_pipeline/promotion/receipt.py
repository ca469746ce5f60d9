"""`gate_receipt.json`: the verdict on an adapter, bound by hash to its evidence.

Also the likely cause of a refusal with its remedy, and `gate_override.json`, the signed record that promotes an adapter
despite a failed gate.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.results import RESULTS, EvalResults, Subject, load_results
from mens_pipeline.models.adapter import MANIFEST, TrainingManifest
from mens_pipeline.promotion.gate import GATES, GateInputs, decide, summarize_gate
from mens_pipeline.promotion.policy import GateName, GateOutcome, GateStatus, Thresholds, overall_status
from mens_pipeline.storage.kinds import GateFile, PromotedFile
from mens_pipeline.storage.store import digest_of, key_of
from mens_pipeline.storage.validation import (
    Document,
    Versioned,
    problem_in,
    read_document,
)

RECEIPT: Final = GateFile.RECEIPT
PAGE: Final = GateFile.PAGE
PIPELINE_COMMIT: Final = "pipeline_commit"
"""Field in the manifest of a verdict: the commit of the code that first gave it."""

FAILED: Final = GateFile.FAILED
"""Written only if the gate fails."""


class Receipt(Document, Versioned):
    """The verdict: the fields of upstream's receipt, and the fields needed to check it."""

    schema_: Literal["vox_mens_gate_receipt_v1"] = Field(default="vox_mens_gate_receipt_v1", alias="schema")
    timestamp_unix: int = Field(ge=0)
    run_dir: str = Field(description="The folder of the evaluated run.")
    policy: str
    overall_passed: bool
    attempt: int | None = Field(
        description="Evaluations on this eval suite since its last promotion, this one included; null if unknown."
    )
    gates: tuple[GateOutcome, ...]
    subject: Subject | None = Field(description="The evaluated files, by hash; null if the results cannot be read.")
    thresholds: Thresholds
    champion_key: str | None = Field(description="Key of the adapter in use.")
    is_benchmark_asked: bool
    strict: bool = Field(description="Whether a failure fails the run, or only warns; nothing is promoted either way.")
    sources: dict[str, str | None] = Field(description="Document -> SHA-256, hexadecimal; null if it is missing.")

    @property
    def status(self) -> GateStatus:
        """Passed, failed, or undecided."""
        return overall_status(self.gates)

    @property
    def tried(self) -> str:
        """`third evaluation on this eval suite`; empty if the number is unknown."""
        return f"{ordinal(self.attempt)} evaluation on this eval suite" if self.attempt is not None else ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """The message of every gate that blocks."""
        return tuple(f"{g.name}: {g.message}" for g in self.gates if g.block and not g.passed)

    @property
    def summary(self) -> str:
        """Measured and required value of each blocking gate; failed gates come before undecided ones."""
        closed = (gate for gate in self.gates if gate.block and not gate.passed)
        return "; ".join(map(summarize_gate, sorted(closed, key=lambda gate: gate.status is GateStatus.UNDECIDED)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The message of every gate that failed and does not block."""
        return tuple(f"{g.name}: {g.message}" for g in self.gates if not g.block and not g.passed)


def ordinal(number: int) -> str:
    """Format an ordinal number, from 1: `third`, `21st`."""
    words = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
    if number <= len(words):
        return words[number - 1]
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


class GateFailed(Versioned):
    """`eval_gate_failed.json`, in upstream's shape."""

    vox_parse_rate: float | None
    construct_coverage_pct: float | None
    min_parse_rate: float
    min_coverage: float
    gate_passed: Literal[False] = False
    timestamp: int
    reasons: tuple[str, ...]
    gates: tuple[GateOutcome, ...]


def read_inputs(results: Path, manifest: Path, champion_key: str | None, *, is_benchmark_asked: bool) -> GateInputs:
    """Read the documents of a verdict; a missing or malformed one is None, with the problem in words."""
    found, problem = load_results(results)
    return GateInputs(found, problem, *_read_manifest(manifest), champion_key, is_benchmark_asked)


def build_receipt(  # noqa: PLR0913 - the fields of a receipt
    inputs: GateInputs,
    sources: Mapping[str, str | None],
    thresholds: Thresholds,
    *,
    policy: str,
    strict: bool,
    now: int,
    run_dir: Path,
) -> Receipt:
    """Decide on documents, and return the receipt; `sources` has the SHA-256 of each, None if it is missing."""
    outcomes = decide(inputs, thresholds)
    return Receipt(
        timestamp_unix=now,
        run_dir=str(run_dir),
        policy=policy,
        overall_passed=overall_status(outcomes) is GateStatus.PASSED,
        attempt=inputs.results.progress.attempt if inputs.results is not None else None,
        gates=outcomes,
        subject=inputs.results.subject if inputs.results is not None else None,
        thresholds=thresholds,
        champion_key=inputs.champion_key,
        is_benchmark_asked=inputs.is_benchmark_asked,
        strict=strict,
        sources=dict(sources),
    )


def hash_documents(results: Path, manifest: Path) -> dict[str, str | None]:
    """Compute the SHA-256 of the documents of a verdict, by name; None for a missing one."""
    paths = {RESULTS: results, MANIFEST: manifest}
    return {name: digest_of(path) if path.is_file() else None for name, path in paths.items()}


def write_receipt(folder: Path, receipt: Receipt, results: EvalResults | None) -> None:
    """Write the receipt, and `eval_gate_failed.json` only if the gate failed."""
    (folder / RECEIPT).write_text(receipt.model_dump_json(indent=2) + "\n", encoding="utf-8")
    failed = folder / FAILED
    if receipt.overall_passed:
        failed.unlink(missing_ok=True)
        return
    document = GateFailed(
        vox_parse_rate=results.vox_parse_rate if results is not None else None,
        construct_coverage_pct=results.construct_coverage_pct if results is not None else None,
        min_parse_rate=receipt.thresholds.min_parse_rate,
        min_coverage=receipt.thresholds.min_coverage,
        timestamp=receipt.timestamp_unix,
        reasons=receipt.reasons,
        gates=receipt.gates,
    )
    failed.write_text(document.model_dump_json(indent=2) + "\n", encoding="utf-8")


def receipt_in(folder: Path) -> Receipt:
    """Read the receipt in a folder; `RefusedError` if it is missing or malformed."""
    return read_document(folder / RECEIPT, Receipt, "receipt", "Run `mens gate` again.")


def digest_of_thresholds(thresholds: Thresholds) -> str:
    """Compute the SHA-256 over thresholds, hexadecimal."""
    return key_of(thresholds.model_dump(mode="json"))


def find_gate(receipt: Receipt, name: GateName) -> GateOutcome:
    """Return one gate of a verdict."""
    return next(gate for gate in receipt.gates if gate.name is name)


def _read_manifest(path: Path) -> tuple[TrainingManifest | None, str]:
    try:
        return TrainingManifest.read(path), ""
    except RefusedError as error:
        # Leave the folder out, so that copied documents give the same verdict.
        return None, str(error).removeprefix(f"{path}: ")


_NEAR: Final = 0.1
"""Largest distance from the required share for a measured one to count as near."""


class Remedy(StrEnum):
    """Advice after a refusal."""

    MORE = "more"
    """Train the same run for longer."""
    PRESET = "preset"
    """Use a recipe with longer rows."""
    DATA = "data"
    """Enlarge the workspace, or use the policy for the first model of a small one."""
    SETTING = "setting"
    """Change the setting that the gate names."""


_NOT_BY_TRAINING: Final = {
    GateName.TRUNCATION: Remedy.PRESET,
    GateName.COMPLETED_SHARE: Remedy.SETTING,  # tasks that are left out also make the suite small
    GateName.SUITE_SIZE: Remedy.DATA,
    GateName.SUPERVISED_RATIO: Remedy.SETTING,
    GateName.THROUGHPUT: Remedy.SETTING,
}
"""Gates that longer training of the same run cannot fix, in the order in which they count as the cause."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The likely cause of a refusal."""

    text: str
    remedy: Remedy


def find_cause(gates: Sequence[GateOutcome], manifest: TrainingManifest) -> Cause | None:
    """Return the likely cause of a refusal; None if no gate blocks."""
    closed = {gate.name: gate for gate in gates if gate.block and not gate.passed}
    if not closed:
        return None
    for name, remedy in _NOT_BY_TRAINING.items():
        if name in closed:
            return Cause(closed[name].message, remedy)
    unread = next((gate for gate in closed.values() if gate.measured is None), None)
    if unread is not None:
        return Cause(unread.message, Remedy.SETTING)
    result, minutes = manifest.result, manifest.recipe.max_minutes
    done, planned = result.num_steps, result.planned_steps
    if minutes is not None and done < planned:
        budget = f"the time budget of {minutes:g} min ended training after {done} of {planned} steps"
        return Cause(budget, Remedy.MORE)
    if all(map(_is_near, closed.values())):
        short = "; ".join(map(summarize_gate, closed.values()))
        return Cause(f"the measured values are near the thresholds: {short}", Remedy.MORE)
    took = f"{done} steps in {result.seconds / 60:.1f} min"
    return Cause(f"training was too short for the thresholds: {took}", Remedy.MORE)


def _is_near(gate: GateOutcome) -> bool:
    if gate.status is GateStatus.UNDECIDED:
        return True
    if gate.measured is None or gate.required is None or GATES[gate.name].measures_chance:
        return False
    return abs(gate.measured - gate.required) <= _NEAR


OVERRIDE: Final = PromotedFile.OVERRIDE
MIN_KEY: Final = 16
"""Fewest characters of a key; shorter keys can be guessed."""


class Override(Document, Versioned):
    """A signed record that applies to one adapter and one verdict."""

    schema_: Literal["mens_gate_override_v1"] = Field(default="mens_gate_override_v1", alias="schema")
    adapter_sha256: str = Field(min_length=64, max_length=64)
    receipt_sha256: str = Field(min_length=64, max_length=64)
    by: str = Field(min_length=1, description="Person who is responsible for it.")
    reason: str = Field(min_length=10, description="Reason to overrule the verdict, in a sentence.")
    timestamp_unix: int = Field(ge=0)
    signature: str = Field(default="", description="HMAC-SHA256 over the rest, hexadecimal.")

    @property
    def content(self) -> dict[str, Any]:
        """All fields of the record."""
        return self.model_dump()

    @property
    def sha256(self) -> str:
        """SHA-256 of the record; the history keeps it, so that a record is used only once."""
        return key_of(self.content)


def sign_override(override: Override, key: str) -> Override:
    """Return the record with its signature; refuse (`ConfigurationError`) a key that is too short."""
    return override.model_copy(update={"signature": _signature(override, key)})


def read_override(path: Path, key: str) -> Override:
    """Read a record and check its signature.

    `RefusedError` if another key signed it, or it was changed since; `ConfigurationError` if it is malformed, or the
    key too short.
    """
    try:
        override = Override.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}. Write one with `mens override`.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not text ({error}). Write one with `mens override`.") from error
    except ValidationError as error:
        problem = problem_in(error, "override", "Write one with `mens override`.")
        raise ConfigurationError(f"{path}: {problem}") from error
    if not hmac.compare_digest(override.signature.encode(), _signature(override, key).encode()):
        raise RefusedError(f"{path}: the signature does not match. Sign it again with the current key.")
    return override


def _signature(override: Override, key: str) -> str:
    if len(key) < MIN_KEY:
        raise ConfigurationError(f"MENS_OVERRIDE_KEY: {len(key)} characters. Set a secret of at least {MIN_KEY}.")
    fields = {name: value for name, value in override.content.items() if name != "signature"}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
