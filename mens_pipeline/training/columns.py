"""Rows and micro-batches as arrays, a few bytes each: what the plan needs of rows, and what it says."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from mens_pipeline.jobs.agent import Team

Rows = NDArray[np.uint32]
"""Rows by their place among those that train."""

_AT_ONCE: Final = 1 << 16
"""Batches that are computed with at once."""

_Item = TypeVar("_Item")


class Planned(Protocol):
    """Fields of a row that the plan needs; its length is in tokens."""

    @property
    def kind(self) -> str:
        """What made it: `task`, `vox_codegen`, `template`."""

    @property
    def category(self) -> str:
        """Its construct or its task."""

    @property
    def difficulty(self) -> int:
        """1 to 10."""

    def __len__(self) -> int: ...


class Names(NamedTuple):
    """A column of words: each row has the place of its word in `words`."""

    codes: NDArray[np.uint16]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of the rows that the plan needs, nine bytes each; lengths in tokens, difficulties from 1 to 10."""

    lengths: NDArray[np.uint32]
    difficulties: NDArray[np.uint8]
    kinds: Names
    categories: Names

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lengths)


def columns_of(rows: Iterable[Planned]) -> Columns:
    """Return the columns of rows that are in memory."""
    lengths, difficulties, kinds, categories = array("I"), array("B"), array("H"), array("H")
    words: tuple[dict[str, int], dict[str, int]] = {}, {}
    for row in rows:
        lengths.append(len(row))
        difficulties.append(row.difficulty)
        kinds.append(words[0].setdefault(row.kind, len(words[0])))
        categories.append(words[1].setdefault(row.category, len(words[1])))
    names = (
        Names(np.array(codes, np.uint16), tuple(own)) for codes, own in zip((kinds, categories), words, strict=True)
    )
    return Columns(np.array(lengths, np.uint32), np.array(difficulties, np.uint8), *names)


class Batches(Sequence[tuple[int, ...]]):
    """Micro-batches in order, four bytes a row and eight a batch: what `rows` holds between two of `starts` is one."""

    def __init__(self, rows: Rows, starts: NDArray[np.int64]) -> None:
        """Take rows by their place in the columns, and where each batch begins, with the end of the last one."""
        self.rows = rows
        self.starts = starts

    @classmethod
    def of(cls, rows: Rows, counts: NDArray[Any]) -> "Batches":
        """Cut rows into batches of so many each."""
        return cls(rows, np.concatenate(([0], np.cumsum(counts, dtype=np.int64))))

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.starts) - 1

    @overload
    def __getitem__(self, place: int) -> tuple[int, ...]: ...

    @overload
    def __getitem__(self, place: slice) -> "Batches": ...

    def __getitem__(self, place: int | slice) -> "tuple[int, ...] | Batches":
        """Return the rows of a batch, or batches that lie side by side."""
        if isinstance(place, slice):
            first, end, _ = place.indices(len(self))
            return Batches(self.rows, self.starts[first : max(first, end) + 1])
        place = range(len(self))[place]
        return tuple(self.rows[self.starts[place] : self.starts[place + 1]].tolist())

    def __eq__(self, other: object) -> bool:
        """Return whether the same rows stand in the same batches."""
        return isinstance(other, Batches) and len(self) == len(other) and all(map(tuple.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    @property
    def all_rows(self) -> Rows:
        """Rows of all batches, one behind the other."""
        return self.rows[self.starts[0] : self.starts[-1]]

    def padded_tokens(self, lengths: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return the tokens of each batch, with padding, where the rows have such lengths."""
        padded = np.diff(self.starts)
        for first in range(0, len(self), _AT_ONCE):
            starts = self.starts[first : first + _AT_ONCE + 1]
            own = lengths[self.rows[starts[0] : starts[-1]]]
            padded[first : first + _AT_ONCE] *= np.maximum.reduceat(own, starts[:-1] - starts[0])
        return padded


class Share(Sequence[_Item]):
    """Micro-batches of one process: of every optimizer step each n-th, where n processes train together.

    There are as many in every process; where a step has none left for this one, it has an empty one.
    """

    def __init__(self, batches: Sequence[_Item], accumulated: int, team: Team, empty: _Item) -> None:
        """Take the micro-batches of all processes, and how many a step has."""
        self._batches = batches
        self._accumulated = accumulated
        self._team = team
        self._empty = empty

    def __len__(self) -> int:
        """Return the number of micro-batches."""
        steps, rest = divmod(len(self._batches), self._accumulated)
        return steps * self._each + -(-rest // self._team.size)

    @overload
    def __getitem__(self, place: int) -> _Item: ...

    @overload
    def __getitem__(self, place: slice) -> list[_Item]: ...

    def __getitem__(self, place: int | slice) -> _Item | list[_Item]:
        """Return one or more of them."""
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        step, number = divmod(range(len(self))[place], self._each)
        wanted = number * self._team.size + self._team.rank
        found = step * self._accumulated + wanted
        return self._batches[found] if wanted < self._accumulated and found < len(self._batches) else self._empty

    @property
    def _each(self) -> int:
        """Micro-batches of a whole step."""
        return -(-self._accumulated // self._team.size)
