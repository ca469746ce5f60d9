"""Texts that nearly repeat an earlier one, found by MinHash.

Source: Broder, "On the resemblance and containment of documents" (1997).
"""

from typing import Final

from mens_pipeline.corpus.curate.shingles import ngrams_of, words_of

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
        self._seen: dict[str, MinHash] = {}
        self._order: dict[str, int] = {}

    def earlier(self, label: str, text: str) -> str | None:
        """Return the label of the first text that this one is near to; otherwise add it and return None.

        No two texts have the same label.
        """
        sketch = self._sketch(num_perm=_NUM_PERM)
        sketch.update_batch([shingle.encode() for shingle in sorted(ngrams_of(words_of(text), _SHINGLE))])
        # The index answers in no fixed order, and only nearly; the first in the order of the texts counts.
        candidates = sorted(self._index.query(sketch), key=self._order.__getitem__)
        near = next((c for c in candidates if sketch.jaccard(self._seen[c]) >= self._threshold), None)
        if near is None:
            self._index.insert(label, sketch)
            self._order[label] = len(self._seen)
            self._seen[label] = sketch
        return near
