"""Find near duplicates among ten million texts in the memory of a laptop.

Each text has a MinHash signature, and each band of a signature has a hash, the key for finding near texts. Signatures
are kept in a file. Hashes stay in memory up to a limit; the rest go to sorted files that are merged as they grow. The
files are anonymous, in the folder for temporary files (`TMPDIR`).
"""

import os
import re
import weakref
from array import array
from collections.abc import Iterator, Sequence
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

_WORD: Final = re.compile(r"\w+|[^\w\s]")
_SHINGLE: Final = 5  # words in a shingle
_NUM_PERM: Final = 128

_LOOSER: Final = 0.7
"""The index misses many texts just above its threshold, so it uses a lower one, and each candidate is compared."""

_RECENT: Final = 1 << 19  # hashes in memory, of 25,000 texts; they take about 130 MB
_PIECES: Final = 64
"""Ranges of hashes that are merged one by one, so that only parts of two files are in memory."""


def words_of(text: str) -> tuple[str, ...]:
    """Split code or prose into names, numbers and single symbols."""
    return tuple(_WORD.findall(text))


def ngrams_of(words: Sequence[str], length: int) -> frozenset[str]:
    """Return the n-grams of words; a shorter text is one n-gram."""
    last = max(1, len(words) - length + 1)
    return frozenset(" ".join(words[start : start + length]) for start in range(last))


class NearDuplicates:
    """Index of the texts seen so far."""

    def __init__(self, threshold: float, recent: int = _RECENT) -> None:
        """Start empty; texts are near if their estimated Jaccard similarity is at least `threshold`."""
        from datasketch import MinHash, MinHashLSH  # noqa: PLC0415 - with SciPy it takes half a second to load

        index = MinHashLSH(threshold=_LOOSER * threshold, num_perm=_NUM_PERM)
        self._threshold = threshold
        self._empty: MinHash = MinHash(num_perm=_NUM_PERM)
        self._bands = _Bands(index.b, index.r, recent)
        self._signatures, self._labels = _temporary(self), _temporary(self)
        self._ends = array("Q", [0])

    def earlier(self, label: str, text: str) -> str | None:
        """Return the label of the first text near this one; without such a text, add this one and return None."""
        sketch = self._empty.copy()
        sketch.update_batch([shingle.encode() for shingle in sorted(ngrams_of(words_of(text), _SHINGLE))])
        signature = sketch.hashvalues
        hashes = self._bands.hashes(signature)
        for number in self._bands.find(hashes):
            if np.count_nonzero(signature == self._signature(number, signature)) / _NUM_PERM >= self._threshold:
                begin, end = self._ends[number : number + 2]
                return os.pread(self._labels.fileno(), end - begin, begin).decode()
        self._signatures.write(signature.tobytes())
        self._labels.write(label.encode())
        self._bands.add(hashes, len(self._ends) - 1)
        self._ends.append(self._ends[-1] + len(label.encode()))
        return None

    def _signature(self, number: int, like: NDArray[Any]) -> NDArray[Any]:
        content = os.pread(self._signatures.fileno(), like.nbytes, number * like.nbytes)
        return np.frombuffer(content, like.dtype)


def _temporary(owner: object) -> BinaryIO:
    file: BinaryIO = TemporaryFile(buffering=0)  # noqa: SIM115 - closed with its owner
    weakref.finalize(owner, file.close)
    return file


class _Bands:
    def __init__(self, num_bands: int, rows: int, most_recent: int) -> None:
        random = np.random.Generator(np.random.PCG64(1))
        self._factors = random.integers(1, 2**63, (num_bands, rows), np.uint64) | np.uint64(1)
        self._most_recent = most_recent
        self._recent: dict[int, list[int]] = {}
        self._num_recent = 0
        self._runs: list[tuple[NDArray[np.uint64], NDArray[np.uint32]]] = []

    def hashes(self, signature: NDArray[Any]) -> NDArray[np.uint64]:
        bands = signature[: self._factors.size].reshape(self._factors.shape).astype(np.uint64)
        mixed = (bands * self._factors).sum(1, dtype=np.uint64)
        hashes: NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(29))) * self._factors[:, 0]
        return hashes

    def find(self, hashes: NDArray[np.uint64]) -> list[int]:
        found = {number for value in hashes.tolist() for number in self._recent.get(value, ())}
        for values, numbers in self._runs:
            for first, end in zip(values.searchsorted(hashes), values.searchsorted(hashes, "right"), strict=True):
                found.update(numbers[first:end].tolist())
        return sorted(found)

    def add(self, hashes: NDArray[np.uint64], number: int) -> None:
        for value in hashes.tolist():
            self._recent.setdefault(value, []).append(number)
        self._num_recent += len(hashes)
        if self._num_recent >= self._most_recent:
            self._spill()

    def _spill(self) -> None:
        """Write the recent hashes to a file, and merge files until each is more than twice as large as the next."""
        values = np.array([value for value, numbers in self._recent.items() for _ in numbers], np.uint64)
        numbers = np.array([number for numbers in self._recent.values() for number in numbers], np.uint32)
        self._runs.append(_write_run([(values, numbers)]))
        self._recent, self._num_recent = {}, 0
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            last = self._runs.pop(), self._runs.pop()
            self._runs.append(_write_run(_merge(last)))


_Run = tuple[NDArray[np.uint64], NDArray[np.uint32]]


def _merge(runs: Sequence[_Run]) -> Iterator[_Run]:
    borders = np.array([piece * (2**64 // _PIECES) for piece in range(1, _PIECES)], np.uint64)
    cuts = [[0, *values.searchsorted(borders), len(values)] for values, _ in runs]
    for piece in range(_PIECES):
        parts = [(run, slice(cut[piece], cut[piece + 1])) for run, cut in zip(runs, cuts, strict=True)]
        values, numbers = (np.concatenate([run[column][own] for run, own in parts]) for column in (0, 1))
        yield values, numbers


def _write_run(pieces: Iterator[_Run] | Sequence[_Run]) -> _Run:
    with TemporaryFile() as values_file, TemporaryFile() as numbers_file:
        for values, numbers in pieces:
            order = np.argsort(values, kind="stable")
            values_file.write(values[order].tobytes())
            numbers_file.write(numbers[order].tobytes())
        values_file.flush()
        numbers_file.flush()
        return np.memmap(values_file, np.uint64, "r"), np.memmap(numbers_file, np.uint32, "r")
