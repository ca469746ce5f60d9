"""A row without what it must not tell: masked where it stays the same program, else dropped."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import JsonValue

from mens_pipeline.corpus.curate.validate import parsed_code
from mens_pipeline.corpus.schema.records import MAX_TEXT, ExtractedRecord, TrainingPair
from mens_pipeline.corpus.telemetry.redaction import RedactionPolicy, SensitiveKind, redact
from mens_pipeline.language import analyze, structure_of

Row = TypeVar("Row", ExtractedRecord, TrainingPair)

_TEXTS: Final = ("text", "prompt", "response", "context", "name", "tests")
_DRAWN: Final = frozenset((SensitiveKind.CARD_NUMBER, SensitiveKind.PHONE, SensitiveKind.IP_ADDRESS))
"""Kinds that random inputs of hidden tests look like by chance."""


@dataclass(frozen=True, slots=True)
class RedactedRow(Generic[Row]):
    """A row after redaction, None where it is dropped, and how many secrets of each kind it held."""

    row: Row | None
    counts: Counter[SensitiveKind]

    @property
    def detail(self) -> str:
        """Format the counts for a person: `2 email, 1 phone`."""
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))


def redact_row(row: Row, policy: RedactionPolicy) -> RedactedRow[Row]:
    """Mask or drop a row that holds a secret or names a person, as the policy says; other rows stay as they are.

    A program is masked only if its syntax tree stays the same but for literals and comments, else it is dropped: a
    number that becomes a name would be another program. A piece of one, with what stands around it, is dropped.
    """
    counts: Counter[SensitiveKind] = Counter()
    changes: dict[str, Any] = {}
    if policy is RedactionPolicy.OFF:
        return RedactedRow(row, counts)
    if isinstance(row, TrainingPair) and row.infill is not None:
        # Cut at a cursor, an address shows only as a whole whose it is, and cannot be masked in pieces.
        found = Counter(redact(f"{row.prompt}{row.response}{row.infill.suffix}").counts)
        return RedactedRow(None if found else row, found)
    for name in _TEXTS:
        # A context may be a comment without its mark.
        mark = "// " if name == "context" else ""
        redacted = redact(f"{mark}{getattr(row, name, None) or ''}")
        if redacted.counts and (name != "tests" or not _DRAWN.issuperset(redacted.counts)):
            counts.update(redacted.counts)
            changes[name] = redacted.text.removeprefix(mark)
    if isinstance(row, ExtractedRecord) and row.metadata != (cleaned := _without_secrets(row.metadata, counts)):
        changes["metadata"] = cleaned
    if not changes:
        return RedactedRow(row, counts)
    if "text" in changes:
        changes["text_sha256"] = hashlib.sha256(changes["text"].encode()).hexdigest()
    masked = row.model_copy(update=changes)
    is_too_long = any(len(str(changes.get(name, ""))) > MAX_TEXT for name in _TEXTS)
    stays = policy is RedactionPolicy.MASK and not is_too_long and _shape(row) == _shape(masked)
    return RedactedRow(masked if stays else None, counts)


def _without_secrets(metadata: Mapping[str, JsonValue], counts: Counter[SensitiveKind]) -> dict[str, JsonValue]:
    """Replace each value of a header that tells something, read as a comment, so that `author: ...` counts as one."""
    cleaned: dict[str, JsonValue] = {}
    for key, value in metadata.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        found = redact(f"// {key}: {text}").counts
        counts.update(found)
        cleaned[key] = "REDACTED" if found else value
    return cleaned


def _shape(row: ExtractedRecord | TrainingPair) -> str | None:
    """Return the structure of the code of a row; None for prose, and for what is no whole program."""
    code = parsed_code(row)
    module = analyze(*code).module if code is not None else None
    return structure_of(module).digest if module is not None else None
