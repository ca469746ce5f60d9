"""Rows that repeat earlier ones, and origins that give too many."""

import hashlib
import json
from collections import Counter

from mens_pipeline.corpus.curate.near_duplicates import NearDuplicates
from mens_pipeline.corpus.curate.pipeline_config import ValidatePolicy
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.corpus.schema.reject_reasons import RejectReason
from mens_pipeline.corpus.schema.training_pair import TrainingPair


class Repetition:
    """The rows kept so far, as far as later ones may repeat them."""

    def __init__(self, policy: ValidatePolicy | None) -> None:
        """Begin with no rows; without a policy only exact repetition counts."""
        self._policy = policy
        self._seen: dict[bytes, str] = {}
        self._near = NearDuplicates(policy.near_duplicate_threshold) if policy else None
        self._origins: Counter[tuple[RejectReason, str]] = Counter()

    def objection(self, row: ExtractedRecord | TrainingPair, label: str) -> tuple[RejectReason, str] | None:
        """Return why a row is one too many, with a sentence; None for one that joins the others.

        Later rows call it by its label, `line 3`, which was not used before.
        """
        key = _identity(row)
        if key in self._seen:
            return RejectReason.DUPLICATE, f"the same as {self._seen[key]}"
        if self._policy is not None and self._near is not None:
            origin, most = _origin(row, self._policy)
            if origin is not None and self._origins[origin] >= most:
                return origin[0], f"{origin[1]} has given {most} rows"
            near = self._near.earlier(label, _content(row))
            if near is not None:
                return RejectReason.NEAR_DUPLICATE, f"nearly the same as {near}"
            if origin is not None:
                self._origins[origin] += 1
        self._seen[key] = label
        return None


def _origin(row: ExtractedRecord | TrainingPair, policy: ValidatePolicy) -> tuple[tuple[RejectReason, str] | None, int]:
    """Return the template, else the source file, that made the row, and how many rows it may make."""
    template = row.template if isinstance(row, TrainingPair) else None
    if template is not None:
        return (RejectReason.TEMPLATE_CAP, template), policy.max_per_template
    if row.source is not None:
        return (RejectReason.SOURCE_CAP, row.source.path), policy.max_per_source
    return None, 0


def _identity(row: ExtractedRecord | TrainingPair) -> bytes:
    """Hash what makes two rows the same: a record's place and text, a pair's prompt and response."""
    if isinstance(row, ExtractedRecord):
        parts = [row.source.path, *map(str, row.source.span), row.text]
    else:
        parts = [row.prompt, row.response]
    return hashlib.sha256(json.dumps(parts).encode()).digest()


def _content(row: ExtractedRecord | TrainingPair) -> str:
    return row.text if isinstance(row, ExtractedRecord) else f"{row.prompt}\n{row.response}"
