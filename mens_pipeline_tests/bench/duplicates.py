"""Measure the search for near duplicates among generated texts, with an index in files and one in memory."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from mens_pipeline.corpus.curate.near_duplicates import NearDuplicates, ngrams_of, words_of
from mens_pipeline_tests.bench.sizes import PEAK, Measured, in_own_process, measure_time

_WORDS = tuple(f"word{number}" for number in range(3_000))
_FIRST = 3_000


class PlainIndex:
    """The index of the library, with all signatures in memory: the reference for answers."""

    def __init__(self, threshold: float) -> None:
        from datasketch import MinHash, MinHashLSH  # noqa: PLC0415 - with SciPy it takes half a second to load

        self._threshold = threshold
        self._sketch = MinHash
        self._index = MinHashLSH(threshold=0.7 * threshold, num_perm=128)
        self._seen: dict[str, tuple[int, Any]] = {}

    def earlier(self, label: str, text: str) -> str | None:
        """Return the label of the first near text; if there is none, add the text and return None."""
        sketch = self._sketch(num_perm=128)
        sketch.update_batch([shingle.encode() for shingle in sorted(ngrams_of(words_of(text), 5))])
        candidates = sorted(self._index.query(sketch), key=lambda label: self._seen[label][0])
        near = next((c for c in candidates if sketch.jaccard(self._seen[c][1]) >= self._threshold), None)
        if near is None:
            self._index.insert(label, sketch)
            self._seen[label] = len(self._seen), sketch
        return near


def texts_with_repeats(number: int) -> Iterator[str]:
    """Yield reproducible texts of 3 to 150 words; four of ten repeat an earlier one with up to three words changed."""
    random = Random(1)  # noqa: S311 - reproducible texts, no secret
    first: list[list[str]] = []
    for _ in range(number):
        if first and random.random() < 0.4:
            words = random.choice(first)[:]
            for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
                words[random.randrange(len(words))] = random.choice(_WORDS)
        else:
            words = [random.choice(_WORDS) for _ in range(random.choice((3, 60, 150)))]
        if len(first) < _FIRST:
            first.append(words)
        yield " ".join(words)


def duplicates_of(_folder: Path, size: int) -> Measured:
    """Measure both indexes on generated texts, and check that they find the same near duplicates."""
    parts = {name: in_own_process(_search, name, size) for name in ("files", "memory")}
    assert parts["files"].pop("answers") == parts["memory"].pop("answers")
    none = in_own_process(_search, "files", 1)[PEAK]
    found = {f"{name}: {what}": value for name, part in parts.items() for what, value in part.items()}
    return found | {f"{name}: bytes a text": (part[PEAK] - none) * 2**20 / size for name, part in parts.items()}


def _search(name: str, size: int) -> Measured:
    found: Measured = {}
    index: NearDuplicates | PlainIndex = NearDuplicates(0.9) if name == "files" else PlainIndex(0.9)
    hashed = hashlib.sha256()
    with measure_time(found, "microseconds a text"):
        for number, text in enumerate(texts_with_repeats(size)):
            hashed.update(f"{index.earlier(f'text {number}', text)}\n".encode())
    found["microseconds a text"] *= 1e6 / size
    return {**found, "answers": float(int.from_bytes(hashed.digest()[:6], "big"))}
