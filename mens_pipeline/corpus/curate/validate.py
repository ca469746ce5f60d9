"""Validate rows one by one: keep them in canonical form, or quarantine them with a reason."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic_core import from_json

from mens_pipeline.corpus.curate.near_duplicates import NearDuplicates
from mens_pipeline.corpus.curate.pipeline_config import ValidatePolicy
from mens_pipeline.corpus.schema.account import Account, counts_of
from mens_pipeline.corpus.schema.prompts import mentioned_names, words_of_code
from mens_pipeline.corpus.schema.reasons import RejectReason, WarnReason
from mens_pipeline.corpus.schema.records import CATEGORIES, ExtractedRecord, TrainingPair, pair_digest, parsed_code
from mens_pipeline.corpus.schema.upstream_rows import is_upstream_record
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language import Analysis, Diagnostic, analyze
from mens_pipeline.language.ast import Module
from mens_pipeline.language.interpreter import hidden_module
from mens_pipeline.language.semantics import first_error
from mens_pipeline.storage.files import MAX_LINE_BYTES
from mens_pipeline.storage.validation import errors_in


class Repetition:
    """Index of the kept rows, to find rows that repeat them."""

    def __init__(self, policy: ValidatePolicy | None) -> None:
        """Start empty; without a policy, only exact repetition counts."""
        self._policy = policy
        self._seen: dict[bytes, str] = {}
        self._near = NearDuplicates(policy.near_duplicate_threshold) if policy else None
        self._origins: Counter[tuple[RejectReason, str]] = Counter()

    def find_reason(self, row: ExtractedRecord | TrainingPair, label: str) -> tuple[RejectReason, str] | None:
        """Return the reason to drop a row, with a sentence; None for a new row, which is added under its label."""
        if isinstance(row, ExtractedRecord):
            key, content = pair_digest(f"{row.source.path} {row.source.span}", row.text), row.text
        else:
            key, content = row.digest, f"{row.prompt}\n{row.response}"
        if key in self._seen:
            return RejectReason.DUPLICATE, f"the same as {self._seen[key]}"
        if self._policy is not None and self._near is not None:
            origin, most = _origin(row, self._policy)
            if origin is not None and self._origins[origin] >= most:
                return origin[0], f"{origin[1]} has given {most} rows"
            near = self._near.earlier(label, content)
            if near is not None:
                return RejectReason.NEAR_DUPLICATE, f"nearly the same as {near}"
            if origin is not None:
                self._origins[origin] += 1
        self._seen[key] = label
        return None


def _origin(row: ExtractedRecord | TrainingPair, policy: ValidatePolicy) -> tuple[tuple[RejectReason, str] | None, int]:
    template = row.template if isinstance(row, TrainingPair) else None
    if template is not None:
        return (RejectReason.TEMPLATE_CAP, template), policy.max_per_template
    if row.source is not None:
        return (RejectReason.SOURCE_CAP, row.source.path), policy.max_per_source
    return None, 0


class Quarantined(BaseModel):
    """A row that was not kept, with its reason."""

    model_config = ConfigDict(frozen=True)

    line: int
    reason: RejectReason
    detail: str
    record: JsonValue


@dataclass(kw_only=True)
class ValidationReport(Account[RejectReason]):
    """Counts of rows. `places` lists warnings about kept rows; `recheck` says whether to parse their code again."""

    recheck: bool
    warned: Counter[WarnReason] = field(default_factory=Counter)
    places: list[tuple[WarnReason, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the counts in JSON types."""
        return {
            "recheck": self.recheck,
            "seen": self.seen,
            "kept": self.kept,
            "rejected": counts_of(RejectReason, self.dropped),
            "warned": counts_of(WarnReason, self.warned),
            "places": self.places,
        }

    def warn(self, reason: WarnReason, row: ExtractedRecord | TrainingPair, cause: str) -> None:
        """Count a warning about a kept row."""
        self.warned[reason] += 1
        if row.source is not None:
            self.places.append((reason, f"{row.source.path} {cause}"))


def validate_rows(
    lines: Iterable[bytes], report: ValidationReport, quarantine: Callable[[Quarantined], None], repetition: Repetition
) -> Iterator[ExtractedRecord | TrainingPair]:
    """Yield the valid rows, in canonical form and in order; skip blank lines.

    Rows with a `text` are records, the others pairs. `report` counts every row; its counts add up once all rows have
    been read. If its `recheck` is set, the front end parses code again; schema and repetition are always checked.
    `quarantine` receives each dropped row; `repetition` records the kept ones.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        report.seen += 1
        row = read_row(line, number)
        if not isinstance(row, Quarantined):
            code = parsed_code(row) if report.recheck else None
            analysis = analyze(*code) if code is not None else None
            why = _find_reason(row, analysis) or repetition.find_reason(row, f"line {number}")
            if why is not None:
                row = Quarantined(line=number, reason=why[0], detail=why[1], record=from_json(line))
            elif code is not None and analysis is not None and analysis.module is not None:
                found = find_semantic_error(row, code[0], analysis.module)
                if found is not None:
                    report.warn(WarnReason.SEMANTIC_ERROR, row, found.code)
        if isinstance(row, Quarantined):
            report.dropped[row.reason] += 1
            quarantine(row)
        else:
            report.kept += 1
            if row.category not in CATEGORIES:
                report.warn(WarnReason.UNKNOWN_CATEGORY, row, row.category)
            yield row


def read_row(line: bytes, number: int) -> ExtractedRecord | TrainingPair | Quarantined:
    """Parse a non-blank line, without checking its code or duplicates."""
    if len(line) > MAX_LINE_BYTES:
        detail = f"more than {MAX_LINE_BYTES} bytes"
        return Quarantined(line=number, reason=RejectReason.TOO_LARGE, detail=detail, record=None)
    try:
        content = from_json(line)
    except ValueError as error:
        text = line.decode("utf-8", "replace").strip()
        return Quarantined(line=number, reason=RejectReason.MALFORMED_JSON, detail=str(error), record=text)
    if not isinstance(content, dict):
        detail = f"expected an object, found {type(content).__name__}"
        return Quarantined(line=number, reason=RejectReason.NOT_AN_OBJECT, detail=detail, record=content)
    try:
        is_record = "text" in content or is_upstream_record(content)
        return (ExtractedRecord if is_record else TrainingPair).model_validate(content)
    except ValidationError as error:
        return Quarantined(line=number, reason=RejectReason.SCHEMA, detail=errors_in(error), record=content)


def read_rows(lines: Iterable[bytes]) -> Iterator[ExtractedRecord | TrainingPair | Quarantined]:
    """Yield the rows of a JSONL file; blank lines are skipped."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield read_row(line, number)


def _find_reason(row: ExtractedRecord | TrainingPair, analysis: Analysis | None) -> tuple[RejectReason, str] | None:
    if analysis is None:
        return None
    if analysis.module is None:
        return RejectReason.COMPILER_REJECTED, format_error(analysis.errors[0])
    if not analysis.module.declarations:
        return RejectReason.COMPILER_REJECTED, "nothing is declared"
    try:
        if isinstance(row, TrainingPair) and row.tests is not None:
            hidden_module(row.tests)
    except ConfigurationError as error:
        return RejectReason.COMPILER_REJECTED, str(error)
    return None


def format_error(found: Diagnostic) -> str:
    """Format an error as `line 3: unknown-name: ...`."""
    return f"line {found.start.line}: {found.code}: {found.message}"


def find_semantic_error(row: ExtractedRecord | TrainingPair, code: str, module: Module) -> Diagnostic | None:
    """Return the first error in names and types of a row's code, or None; names in its request and tests are known."""
    assumed: set[str] = set()
    if isinstance(row, TrainingPair):
        assumed = mentioned_names(row.prompt) | words_of_code(row.tests or "")
    return first_error(module, code, frozenset(assumed))
