"""Requests and reports as JSON types, for machines and between processes."""

from dataclasses import asdict, dataclass
from typing import Any

from mens_pipeline.language.diagnostics import Code, Diagnostic, Severity
from mens_pipeline.language.interpreter.limits import Features, Limits
from mens_pipeline.language.interpreter.results import (
    CaseResult,
    ErrorKind,
    LimitKind,
    Outcome,
    ProgramReport,
    ProgramStatus,
    Reason,
    Refusal,
    TextName,
)
from mens_pipeline.language.parser.modules import Mode
from mens_pipeline.language.source_text import Position


@dataclass(frozen=True, slots=True)
class Request:
    """Request to a worker.

    Without `tests`, those of the program itself are run; `seed` is for the arguments of properties.
    """

    source: str
    tests: str | None
    limits: Limits
    seed: int
    features: Features
    mode: Mode = Mode.SOURCE


def request_of(record: dict[str, Any]) -> Request:
    """Build a request from its record, as `dataclasses.asdict` made it."""
    limits, features, mode = Limits(**record["limits"]), Features(**record["features"]), Mode(record["mode"])
    return Request(record["source"], record["tests"], limits, record["seed"], features, mode)


def report_record(report: ProgramReport) -> dict[str, Any]:
    """Return a report in JSON types; lines count from 1, columns from 0."""
    return {**asdict(report), "num_passed": report.num_passed, "error_class": report.error_class}


def report_of(record: dict[str, Any]) -> ProgramReport:
    """Build a report from its record."""
    return ProgramReport(
        ProgramStatus(record["status"]),
        tuple(_result_of(test) for test in record["tests"]),
        tuple(_diagnostic_of(diagnostic) for diagnostic in record["diagnostics"]),
        LimitKind(record["limit"]) if record["limit"] is not None else None,
        record["message"],
        tuple(record["notes"]),
    )


_REASONS: dict[Outcome, type[ErrorKind] | type[LimitKind] | type[Refusal]] = {
    Outcome.ERROR: ErrorKind,
    Outcome.LIMIT: LimitKind,
    Outcome.UNSUPPORTED: Refusal,
}


def _result_of(record: dict[str, Any]) -> CaseResult:
    outcome = Outcome(record["outcome"])
    kind = _REASONS.get(outcome)
    reason: Reason | None = kind(record["reason"]) if kind is not None else None
    fields = {**record, "outcome": outcome, "reason": reason, "text": TextName(record["text"])}
    return CaseResult(**{**fields, "notes": tuple(record["notes"])})


def _diagnostic_of(record: dict[str, Any]) -> Diagnostic:
    start, end = Position(**record["start"]), Position(**record["end"])
    return Diagnostic(
        Severity(record["severity"]), Code(record["code"]), record["message"], start, end, record["advice"]
    )
