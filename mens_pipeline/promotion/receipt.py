"""`gate_receipt.json`: the verdict on an adapter, bound by hash to all it rests on.

Beside it stand why an adapter was refused, in a line, with what would help: a refusal is where the next run begins; and
`gate_override.json`, the signed record that lets an adapter be promoted although its gate said no.
"""

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.results import RESULTS, EvalResults, Subject
from mens_pipeline.models.adapter import MANIFEST, TrainingManifest
from mens_pipeline.promotion.gate import GateInputs, decide
from mens_pipeline.promotion.policy import GateName, GateOutcome, GateStatus, Thresholds, overall_status
from mens_pipeline.storage.kinds import GateFile, PromotedFile
from mens_pipeline.storage.store import digest_of, key_of
from mens_pipeline.storage.validation import (
    Document,
    Versioned,
    errors_in,
    newer_than_known,
    problem_in,
    read_document,
)

RECEIPT: Final = GateFile.RECEIPT
PAGE: Final = GateFile.PAGE
FAILED: Final = GateFile.FAILED
"""Written exactly when the gate fails."""


class Receipt(Document, Versioned):
    """The verdict; the fields of upstream's receipt, and what makes it checkable."""

    schema_: Literal["vox_mens_gate_receipt_v1"] = Field(default="vox_mens_gate_receipt_v1", alias="schema")
    timestamp_unix: int = Field(ge=0)
    run_dir: str = Field(description="Where what was evaluated lies.")
    policy: str
    overall_passed: bool
    attempt: int | None = Field(
        description="Evaluations on this eval suite since its last promotion, this one included; null when unknown."
    )
    gates: tuple[GateOutcome, ...]
    subject: Subject | None = Field(description="What was evaluated, by hash; null when the results cannot be read.")
    thresholds: Thresholds
    champion_key: str | None = Field(description="The adapter that was in use.")
    is_benchmark_asked: bool
    strict: bool = Field(description="Whether a failure fails the run, or only warns; nothing is promoted either way.")
    sources: dict[str, str | None] = Field(description="Document -> SHA-256, hexadecimal; null when it is missing.")

    @property
    def status(self) -> GateStatus:
        """Whether it passed, failed, or cannot tell."""
        return overall_status(self.gates)

    @property
    def tried(self) -> str:
        """Number of the evaluation on the eval suite, in words; empty where that is unknown."""
        return f"{ordinal(self.attempt)} evaluation on this eval suite" if self.attempt is not None else ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it does not pass: the message of every gate that blocks."""
        return tuple(f"{g.name}: {g.message}" for g in self.gates if g.block and not g.passed)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The message of every gate that failed and does not block."""
        return tuple(f"{g.name}: {g.message}" for g in self.gates if not g.block and not g.passed)


def ordinal(number: int) -> str:
    """Write a place in an order, from 1: `third`, `21st`."""
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


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The documents that a verdict rests on."""

    results_path: Path
    manifest_path: Path


def verdict_on(  # noqa: PLR0913 - all that a verdict rests on
    evaluated: Evaluated,
    policy: str,
    thresholds: Thresholds,
    champion_key: str | None,
    *,
    is_benchmark_asked: bool,
    strict: bool,
    now: int,
    run_dir: Path,
) -> Receipt:
    """Decide on what the documents say; a missing or malformed one fails the gates that read it."""
    paths = {RESULTS: evaluated.results_path, MANIFEST: evaluated.manifest_path}
    results, results_problem = _read_results(evaluated.results_path)
    manifest, manifest_problem = read_json(evaluated.manifest_path)
    inputs = GateInputs(results, results_problem, manifest, manifest_problem, champion_key, is_benchmark_asked)
    outcomes = decide(inputs, thresholds)
    return Receipt(
        timestamp_unix=now,
        run_dir=str(run_dir),
        policy=policy,
        overall_passed=overall_status(outcomes) is GateStatus.PASSED,
        attempt=results.progress.attempt if results is not None else None,
        gates=outcomes,
        subject=results.subject if results is not None else None,
        thresholds=thresholds,
        champion_key=champion_key,
        is_benchmark_asked=is_benchmark_asked,
        strict=strict,
        sources={name: digest_of(path) if path.is_file() else None for name, path in paths.items()},
    )


def write_receipt(folder: Path, receipt: Receipt, results: EvalResults | None) -> None:
    """Write the receipt, and `eval_gate_failed.json` exactly when it says no."""
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
    """Read the verdict in a folder.

    Raises:
        RefusedError: It is none.
    """
    return read_document(folder / RECEIPT, Receipt, "receipt", "Run `mens gate` again.")


def digest_of_thresholds(thresholds: Thresholds) -> str:
    """Compute the SHA-256 over what is demanded, hexadecimal."""
    return key_of(thresholds.model_dump(mode="json"))


def gate_of(receipt: Receipt, name: GateName) -> GateOutcome:
    """One gate of a verdict."""
    return next(gate for gate in receipt.gates if gate.name is name)


def read_results(path: Path) -> EvalResults | None:
    """Read the figures of an evaluation; return None when they cannot be read."""
    return _read_results(path)[0]


def results_in(folder: Path) -> EvalResults:
    """Read the figures of an evaluation that is unchanged."""
    results = read_results(folder / RESULTS)
    assert results is not None, "what is complete can be read"  # noqa: S101 - our own impossibility
    return results


def _read_results(path: Path) -> tuple[EvalResults | None, str]:
    content, problem = read_json(path)
    if content is None:
        return None, problem
    try:
        return EvalResults.model_validate_json(json.dumps(content)), ""
    except ValidationError as error:
        return None, newer_than_known(error) or f"malformed ({errors_in(error)[:300]})"


def read_json(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Read the object in a file; return None and the reason where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, "missing"
    except OSError as error:
        return None, f"unreadable ({error.strerror})"
    except (ValueError, RecursionError) as error:
        return None, f"malformed ({error})"
    return (content, "") if isinstance(content, dict) else (None, "malformed (no object)")


_NEAR: Final = 0.1
"""How far below what is required a measured share is near it."""


class Remedy(StrEnum):
    """Kind of command that helps against a refusal."""

    MORE = "more"
    """The same run goes on for a while."""
    PRESET = "preset"
    """Another recipe, which takes longer rows."""
    DATA = "data"
    """A larger workspace, or a policy for the first model of a small one."""
    SETTING = "setting"
    """What the gate names has to be changed first."""


_MEASURE_A_CHANCE: Final = (GateName.REGRESSION, GateName.DECLINE)

_NOT_BY_TRAINING: Final = {
    GateName.TRUNCATION: Remedy.PRESET,
    GateName.COMPLETED_SHARE: Remedy.SETTING,  # what cannot be asked makes an eval suite small as well
    GateName.SUITE_SIZE: Remedy.DATA,
    GateName.SUPERVISED_RATIO: Remedy.SETTING,
    GateName.THROUGHPUT: Remedy.SETTING,
}
"""Gates that more training of the same run does not open, the first cause first."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The likely cause of a refusal."""

    text: str
    remedy: Remedy


def cause_of(gates: Sequence[GateOutcome], manifest: TrainingManifest) -> Cause | None:
    """Return why an adapter was refused; None where it was not."""
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
        short = ", ".join(f"{name} {gate.measured:.3f} of {gate.required:.3f}" for name, gate in closed.items())
        return Cause(f"what was measured is near what is required: {short}", Remedy.MORE)
    took = f"{done} steps in {result.seconds / 60:.1f} min"
    return Cause(f"training was short for what is required: {took}", Remedy.MORE)


def _is_near(gate: GateOutcome) -> bool:
    if gate.status is GateStatus.UNDECIDED:
        return True
    if gate.measured is None or gate.required is None or gate.name in _MEASURE_A_CHANCE:
        return False
    return abs(gate.measured - gate.required) <= _NEAR


OVERRIDE: Final = PromotedFile.OVERRIDE
MIN_KEY: Final = 16
"""Characters of a key; shorter ones are guessed."""


class Override(Document, Versioned):
    """The record; it holds for one adapter and one verdict."""

    schema_: Literal["mens_gate_override_v1"] = Field(default="mens_gate_override_v1", alias="schema")
    adapter_sha256: str = Field(min_length=64, max_length=64)
    receipt_sha256: str = Field(min_length=64, max_length=64)
    by: str = Field(min_length=1, description="Who answers for it.")
    reason: str = Field(min_length=10, description="Why the verdict does not count, in a sentence.")
    timestamp_unix: int = Field(ge=0)
    signature: str = Field(default="", description="HMAC-SHA256 over the rest, hexadecimal.")

    @property
    def content(self) -> dict[str, Any]:
        """All that it says."""
        return self.model_dump()

    @property
    def sha256(self) -> str:
        """SHA-256 of the record, by which the history knows that it was used."""
        return key_of(self.content)


def sign_override(override: Override, key: str) -> Override:
    """Return the record with its signature.

    Raises:
        ConfigurationError: The key is too short.
    """
    return override.model_copy(update={"signature": _signature(override, key)})


def read_override(path: Path, key: str) -> Override:
    """Read a record and check its signature.

    Raises:
        ConfigurationError: It is missing or no record, or the key is too short.
        RefusedError: It was not signed with this key, or was changed since.
    """
    try:
        override = Override.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}. Write one with `mens override`.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: no text ({error}). Write one with `mens override`.") from error
    except ValidationError as error:
        problem = problem_in(error, "override", "Write one with `mens override`.")
        raise ConfigurationError(f"{path}: {problem}") from error
    if not hmac.compare_digest(override.signature.encode(), _signature(override, key).encode()):
        raise RefusedError(f"{path}: the signature does not fit. Sign it again with the key in use.")
    return override


def _signature(override: Override, key: str) -> str:
    if len(key) < MIN_KEY:
        raise ConfigurationError(f"MENS_OVERRIDE_KEY: {len(key)} characters. Set a secret of at least {MIN_KEY}.")
    fields = {name: value for name, value in override.content.items() if name != "signature"}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
