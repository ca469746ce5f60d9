"""`gate_receipt.json`: the verdict on an adapter, bound by hash to all it rests on."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from mens_pipeline.evaluation.results import RESULTS, EvalResults, Subject
from mens_pipeline.promotion.gate import GateInputs, GateOutcome, GateStatus, decide, overall_status
from mens_pipeline.promotion.policy import GateName, Thresholds
from mens_pipeline.storage.store import digest_of, key_of
from mens_pipeline.storage.validation import Document, Strict, errors_in
from mens_pipeline.training.manifest import MANIFEST

RECEIPT: Final = "gate_receipt.json"
FAILED: Final = "eval_gate_failed.json"
"""Written exactly when the gate fails."""


class Receipt(Document):
    """The verdict; the fields of upstream's receipt, and what makes it checkable."""

    schema_: Literal["vox_mens_gate_receipt_v1"] = Field(default="vox_mens_gate_receipt_v1", alias="schema")
    timestamp_unix: int = Field(ge=0)
    run_dir: str = Field(description="Where what was judged lies.")
    policy: str
    overall_passed: bool
    attempt: int | None = Field(
        description="Evaluations on this exam since it last promoted an adapter, this one included; null when unknown."
    )
    gates: tuple[GateOutcome, ...]
    subject: Subject | None = Field(description="What was judged, by hash; null when the results cannot be read.")
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
        """Number of the evaluation on the exam, in words; empty where that is unknown."""
        return f"{ordinal(self.attempt)} evaluation on this exam" if self.attempt is not None else ""

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


class GateFailed(Strict):
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
class Judged:
    """The documents that a verdict rests on."""

    results_path: Path
    manifest_path: Path


def verdict_on(  # noqa: PLR0913 - all that a verdict rests on
    judged: Judged,
    policy: str,
    thresholds: Thresholds,
    champion_key: str | None,
    *,
    is_benchmark_asked: bool,
    strict: bool,
    now: int,
    run_dir: Path,
) -> Receipt:
    """Judge what the documents say; a missing or malformed one fails the gates that read it."""
    results, results_problem = _read_results(judged.results_path)
    manifest, manifest_problem = read_json(judged.manifest_path)
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
        sources={
            RESULTS: _digest(judged.results_path),
            MANIFEST: _digest(judged.manifest_path),
        },
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
    """Read the figures of an evaluation that is as it was written."""
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
        return None, f"malformed ({errors_in(error)[:300]})"


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


def _digest(path: Path) -> str | None:
    return digest_of(path) if path.is_file() else None
