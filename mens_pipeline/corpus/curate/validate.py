"""Rows of a JSONL file, one by one: kept as they should be, or quarantined with the reason."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic_core import from_json

from mens_pipeline.corpus.curate.repetition import Repetition
from mens_pipeline.corpus.curate.resolution import semantic_problem
from mens_pipeline.corpus.schema.categories import unknown_category
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.corpus.schema.reject_reasons import RejectReason, WarnReason
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language import Analysis, Mode, analyze, mode_of
from mens_pipeline.language.interpreter.hidden_tests import hidden_module
from mens_pipeline.storage.files import MAX_LINE_BYTES
from mens_pipeline.storage.validation import errors_in


class Quarantined(BaseModel):
    """A row that was not kept, with its reason."""

    model_config = ConfigDict(frozen=True)

    line: int
    reason: RejectReason
    detail: str
    record: JsonValue


@dataclass
class ValidationReport:
    """Counts that must add up: seen is kept plus rejected. Of those that are kept some have a warning."""

    recheck: bool
    seen: int = 0
    kept: int = 0
    rejected: Counter[RejectReason] = field(default_factory=Counter)
    warned: Counter[WarnReason] = field(default_factory=Counter)

    def adds_up(self) -> bool:
        """Return whether nothing disappeared."""
        return self.seen == self.kept + sum(self.rejected.values())

    def as_json(self) -> dict[str, Any]:
        """Return the counts in JSON types."""
        rejected = {str(reason): self.rejected[reason] for reason in RejectReason}
        warned = {str(reason): self.warned[reason] for reason in WarnReason}
        return {
            "recheck": self.recheck,
            "seen": self.seen,
            "kept": self.kept,
            "rejected": rejected,
            "warned": warned,
        }


def validate_rows(
    lines: Iterable[bytes],
    report: ValidationReport,
    quarantine: Callable[[Quarantined], None],
    repetition: Repetition,
) -> Iterator[ExtractedRecord | TrainingPair]:
    """Yield the good rows, in canonical form and in order; blank lines are skipped.

    Records have a `text`, pairs have none. `report` counts every row; it adds up once all rows have been taken, and its
    `recheck` says whether code is judged by the front end again; schema and repetition are checked in any case.
    `quarantine` takes each row that is not kept, `repetition` takes up those that are.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        report.seen += 1
        row = _validated(line, number, repetition, report)
        if isinstance(row, Quarantined):
            report.rejected[row.reason] += 1
            quarantine(row)
        else:
            report.kept += 1
            yield row


def read_row(line: bytes, number: int) -> ExtractedRecord | TrainingPair | Quarantined:
    """Parse a line as the row it should be; neither its code nor duplicates are checked.

    The number of the line, which is not blank, counts from 1.
    """
    if len(line) > MAX_LINE_BYTES:
        detail = f"more than {MAX_LINE_BYTES} bytes"
        return Quarantined(line=number, reason=RejectReason.TOO_LARGE, detail=detail, record=None)
    try:
        content = from_json(line)
    except ValueError as error:
        text = line.decode("utf-8", "replace").strip()
        return Quarantined(line=number, reason=RejectReason.MALFORMED_JSON, detail=str(error), record=text)
    if not isinstance(content, dict):
        detail = f"found {type(content).__name__}"
        return Quarantined(line=number, reason=RejectReason.NOT_AN_OBJECT, detail=detail, record=content)
    try:
        return (ExtractedRecord if "text" in content else TrainingPair).model_validate(content)
    except ValidationError as error:
        return Quarantined(line=number, reason=RejectReason.SCHEMA, detail=errors_in(error), record=content)


def read_rows(lines: Iterable[bytes]) -> Iterator[ExtractedRecord | TrainingPair | Quarantined]:
    """Yield the rows of a JSONL file; blank lines are skipped."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield read_row(line, number)


def _validated(
    line: bytes, number: int, repetition: Repetition, report: ValidationReport
) -> ExtractedRecord | TrainingPair | Quarantined:
    row = read_row(line, number)
    if isinstance(row, Quarantined):
        return row
    code = judged_code(row) if report.recheck else None
    analysis = analyze(*code) if code is not None else None
    objection = _objection(row, analysis) or repetition.objection(row, f"line {number}")
    if objection is None:
        if code is not None and analysis is not None and analysis.module is not None:
            report.warned[WarnReason.SEMANTIC_ERROR] += semantic_problem(row, code[0], analysis.module) is not None
        return row
    return Quarantined(line=number, reason=objection[0], detail=objection[1], record=from_json(line))


def _objection(row: ExtractedRecord | TrainingPair, analysis: Analysis | None) -> tuple[RejectReason, str] | None:
    """Return why a row is not kept whatever the others are."""
    unknown = unknown_category(row.category)
    if unknown is not None:
        return RejectReason.UNKNOWN_CATEGORY, unknown
    problem = _compiler_problem(row, analysis) if analysis is not None else None
    return None if problem is None else (RejectReason.COMPILER_REJECTED, problem)


def judged_code(row: ExtractedRecord | TrainingPair) -> tuple[str, Mode] | None:
    """Return the code of a row and the mode to parse it in; None for prose."""
    if isinstance(row, ExtractedRecord):
        code, is_code = row.text, row.verdict == "accepted"
    else:
        code, is_code = row.response, row.response_mode == "code_only"
    if not is_code:
        return None
    return code, mode_of(row.source.path) if row.source is not None else Mode.SOURCE


def _compiler_problem(row: ExtractedRecord | TrainingPair, analysis: Analysis) -> str | None:
    """Return why the front end rejects the code or tests of a row; None for accepted code."""
    if analysis.module is None:
        first = analysis.errors[0]
        return f"line {first.start.line}: {first.code}: {first.message}"
    if not analysis.module.declarations:
        return "nothing is declared"
    return _tests_problem(row.tests) if isinstance(row, TrainingPair) and row.tests is not None else None


def _tests_problem(tests: str) -> str | None:
    """Return why the front end rejects hidden tests; None if it accepts them."""
    try:
        hidden_module(tests)
    except ConfigurationError as error:
        return str(error)
    return None
