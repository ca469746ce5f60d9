"""Rows that repeat earlier ones, exactly or nearly, and origins that give too many."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from mens_pipeline.corpus.curate.pipeline_config import ValidatePolicy
from mens_pipeline.corpus.schema.reasons import RejectReason
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.corpus.schema.training_pair import TrainingPair, pair_digest

_WORD: Final = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> tuple[str, ...]:
    """Return names, numbers and single signs, in order; for code and prose alike."""
    return tuple(_WORD.findall(text))


def ngrams_of(words: Sequence[str], length: int) -> frozenset[str]:
    """Return the n-grams of some words; a shorter text is one n-gram."""
    last = max(1, len(words) - length + 1)
    return frozenset(" ".join(words[start : start + length]) for start in range(last))


_SHINGLE: Final = 5
"""Words in a shingle."""

_NUM_PERM: Final = 128

_LOOSER: Final = 0.7
"""The index misses many texts just above its own threshold, so it is asked for less, and each answer is compared."""


class NearDuplicates:
    """The texts seen so far."""

    def __init__(self, threshold: float) -> None:
        """Begin with no texts; from this share of common shingles (Jaccard, 0 to 1, estimated) on, two are near."""
        from datasketch import MinHash, MinHashLSH  # noqa: PLC0415 - with SciPy it takes half a second to load

        self._threshold = threshold
        self._sketch = MinHash
        self._index = MinHashLSH(threshold=_LOOSER * threshold, num_perm=_NUM_PERM)
        self._seen: dict[str, tuple[int, MinHash]] = {}

    def earlier(self, label: str, text: str) -> str | None:
        """Return the label of the first text that this one is near to; otherwise add it under its own."""
        sketch = self._sketch(num_perm=_NUM_PERM)
        sketch.update_batch([shingle.encode() for shingle in sorted(ngrams_of(words_of(text), _SHINGLE))])
        # The index answers in no fixed order, and only nearly; the first in the order of the texts counts.
        candidates = sorted(self._index.query(sketch), key=lambda label: self._seen[label][0])
        near = next((c for c in candidates if sketch.jaccard(self._seen[c][1]) >= self._threshold), None)
        if near is None:
            self._index.insert(label, sketch)
            self._seen[label] = len(self._seen), sketch
        return near


class Repetition:
    """The rows kept so far, as far as later ones may repeat them."""

    def __init__(self, policy: ValidatePolicy | None) -> None:
        """Begin with no rows; without a policy only exact repetition counts."""
        self._policy = policy
        self._seen: dict[bytes, str] = {}
        self._near = NearDuplicates(policy.near_duplicate_threshold) if policy else None
        self._origins: Counter[tuple[RejectReason, str]] = Counter()

    def objection(self, row: ExtractedRecord | TrainingPair, label: str) -> tuple[RejectReason, str] | None:
        """Return why a row is one too many, with a sentence; None for one that joins the others under its label."""
        if isinstance(row, ExtractedRecord):
            key, content = pair_digest(f"{row.source.path} {row.source.span}", row.text), row.text
        else:
            key, content = pair_digest(row.prompt, row.response), f"{row.prompt}\n{row.response}"
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
    """Return the template, else the source file, that made the row, and how many rows it may make."""
    template = row.template if isinstance(row, TrainingPair) else None
    if template is not None:
        return (RejectReason.TEMPLATE_CAP, template), policy.max_per_template
    if row.source is not None:
        return (RejectReason.SOURCE_CAP, row.source.path), policy.max_per_source
    return None, 0
