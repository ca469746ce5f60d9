"""The order of a whole run, fixed before it begins: the rows of every micro-batch of every step.

A run with a fixed order can resume at any step as if it had never stopped. Each row and micro-batch takes a few bytes
of an array.
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from mens_pipeline.jobs.agent import Team
from mens_pipeline.training.recipe import CODE, FROM_USERS, Continued, Recipe

Rows = NDArray[np.uint32]
"""Rows by their index among those that train."""

_WINDOW: Final = 256
"""Minimum number of rows in a window: enough to find rows of similar length, and a small part of a run."""

_BATCHES_OF_WINDOW: Final = 24
"""Minimum number of micro-batches in a window: with a few large ones, rows of all lengths would share one."""

MOST_PASSES: Final = 4
"""Most passes over one kind in an epoch; up to four, repeated data is nearly as good as new (Muennighoff et al. 2023,
arXiv:2305.16264)."""

EVALUATIONS: Final = 4
"""Number of times that a run measures the validation loss, however often it writes a checkpoint."""

_LEAST_REST: Final = 1e-6
"""A smaller rest of the shares is a rounding error."""

_PIECE: Final = 1 << 20
"""Rows to process at once if each needs more than a few bytes."""

_BATCHES_AT_ONCE: Final = 1 << 16
"""Batches to compute with at once."""

Category = TypeVar("Category", str, int)
_Item = TypeVar("_Item")


class _PlannedRow(Protocol):
    """A row whose kind is its origin (`task`, `template`), its category a construct or task, its length in tokens."""

    @property
    def kind(self) -> str: ...

    @property
    def category(self) -> str: ...

    @property
    def difficulty(self) -> int: ...

    def __len__(self) -> int: ...


class Names(NamedTuple):
    """A column of words; `codes` are indices into `words`."""

    codes: NDArray[np.uint16]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that the plan needs, nine bytes a row; lengths in tokens, difficulties from 1 to 10."""

    lengths: NDArray[np.uint32]
    difficulties: NDArray[np.uint8]
    kinds: Names
    categories: Names

    def __len__(self) -> int:
        return len(self.lengths)


def build_columns(rows: Iterable[_PlannedRow]) -> Columns:
    """Build the columns of rows that are in memory."""
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
    """Micro-batches in order, at four bytes a row and eight a batch."""

    def __init__(self, rows: Rows, starts: NDArray[np.int64]) -> None:
        """Store rows by their index in the columns; batch `i` is `rows[starts[i] : starts[i + 1]]`."""
        self.rows = rows
        self.starts = starts

    @classmethod
    def of(cls, rows: Rows, counts: NDArray[Any]) -> "Batches":
        """Cut rows into batches; `counts` are the numbers of rows in each batch."""
        return cls(rows, np.concatenate(([0], np.cumsum(counts, dtype=np.int64))))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, place: int) -> tuple[int, ...]: ...

    @overload
    def __getitem__(self, place: slice) -> "Batches": ...

    def __getitem__(self, place: int | slice) -> "tuple[int, ...] | Batches":
        if isinstance(place, slice):
            first, end, _ = place.indices(len(self))
            return Batches(self.rows, self.starts[first : max(first, end) + 1])
        place = range(len(self))[place]
        return tuple(self.rows[self.starts[place] : self.starts[place + 1]].tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batches) and len(self) == len(other) and all(map(tuple.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    @property
    def all_rows(self) -> Rows:
        """Rows of all batches in order."""
        return self.rows[self.starts[0] : self.starts[-1]]

    def padded_tokens(self, lengths: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Compute the tokens of each batch, with padding, from the lengths of the rows."""
        padded = np.diff(self.starts)
        for first in range(0, len(self), _BATCHES_AT_ONCE):
            starts = self.starts[first : first + _BATCHES_AT_ONCE + 1]
            own = lengths[self.rows[starts[0] : starts[-1]]]
            padded[first : first + _BATCHES_AT_ONCE] *= np.maximum.reduceat(own, starts[:-1] - starts[0])
        return padded


class Share(Generic[_Item]):
    """Micro-batches of one process: every n-th of each optimizer step, if n processes train together.

    Every process gets the same number of micro-batches; if a step has none left for this process, it gets `empty`.
    """

    def __init__(self, batches: Sequence[_Item], accumulated: int, team: Team, empty: _Item) -> None:
        """Split the micro-batches of all processes, `accumulated` for each step."""
        self._batches = batches
        self._accumulated = accumulated
        self._team = team
        self._empty = empty

    def __len__(self) -> int:
        steps, rest = divmod(len(self._batches), self._accumulated)
        return steps * -(-self._accumulated // self._team.size) + -(-rest // self._team.size)

    def __iter__(self) -> Iterator[_Item]:
        for start in range(0, len(self._batches), self._accumulated):
            step = range(start, min(start + self._accumulated, len(self._batches)))
            for first in range(0, len(step), self._team.size):
                own = step[first : first + self._team.size][self._team.rank :]
                yield self._batches[own[0]] if own else self._empty


def compute_shares(tokens: Mapping[str, int], named: Mapping[str, float]) -> dict[str, float]:
    """Compute the share of the shown tokens for each kind; the sum is 1, unless all kinds present are given 0.

    The `named` shares sum to at most 1. The shares of missing kinds are split among the others, in proportion. Kinds
    without a named share split the rest in proportion to their `tokens`. If there is no rest, each of them gets the
    share of its tokens among all tokens, taken from the named kinds in proportion. Completions that users accepted then
    get `MOST_PASSES` times that share, up to the share of `CODE`, so that even a short run shows all of them.
    """
    others = {kind: count for kind, count in tokens.items() if kind not in named}
    wanted = {kind: named[kind] for kind in tokens if kind in named}
    rest = 1 - sum(named.values())
    if rest > _LEAST_REST:
        wanted |= {kind: rest * count / sum(others.values()) for kind, count in others.items()}
    elif others:
        sizes = {kind: count / sum(tokens.values()) for kind, count in others.items()}
        cut = (1 - sum(sizes.values())) / (sum(wanted.values()) or 1)
        wanted = {kind: cut * share for kind, share in wanted.items()} | sizes
        for kind in FROM_USERS & sizes.keys():
            wanted[kind] = max(sizes[kind], min(MOST_PASSES * sizes[kind], named.get(CODE, 0)))
    whole = sum(wanted.values())
    return {kind: wanted[kind] / whole if whole else 0.0 for kind in tokens}


class Dealer:
    """Deals the rows of each kind in passes, each in a new order, and mixes the kinds by their shares."""

    def __init__(self, rows: Columns, weights: NDArray[np.float64], recipe: Recipe) -> None:
        """Deal the rows, each `weights` times in a pass (see `_weights`)."""
        self._rows = rows
        self._weights = weights
        self._named = recipe.kind_shares
        self._seed = recipe.seed
        self._window_tokens = _BATCHES_OF_WINDOW * (recipe.tokens_at_once or 1)
        self._queues: dict[str, Rows] = {}
        self._passes: dict[str, int] = {}

    def windows(self, rows: Rows, *, easy_first: bool) -> Iterator[Rows]:
        """Yield the rows of an epoch in windows; every kind has its share of the tokens in each window.

        An epoch has as many tokens as its rows. A kind that runs out starts again, up to `MOST_PASSES` times; after
        that, the epoch gets shorter. The next epoch starts with the rows that this epoch did not show; with
        `easy_first`, each epoch restarts the passes of all kinds.
        """
        codes, words = self._rows.kinds.codes[rows], self._rows.kinds.words
        there = {words[code]: rows[codes == code] for code in sorted(_counts(codes), key=words.__getitem__)}
        tokens = {kind: int(self._rows.lengths[own].sum()) for kind, own in there.items()}
        whole = sum(tokens.values())
        shown: list[Rows] = [np.empty(0, np.uint32)]
        places: list[NDArray[np.float64]] = [np.empty(0)]
        for kind, share in compute_shares(tokens, self._named).items():
            if easy_first:
                self._queues.pop(kind, None)
            quota = share * whole
            dealt = self._deal(kind, there[kind], min(quota, MOST_PASSES * tokens[kind]))
            if easy_first:
                dealt = dealt[np.argsort(self._rows.difficulties[dealt], kind="stable")]
            if len(dealt):
                shown.append(dealt)
                places.append(_compute_places(self._rows.lengths[dealt], quota))
        order = np.concatenate(shown)[np.argsort(np.concatenate(places), kind="stable")]
        number = max(1, round(min(len(order) / _WINDOW, whole / self._window_tokens)))
        for window in range(number):
            own = order[window * len(order) // number : (window + 1) * len(order) // number]
            if len(own):
                yield own

    def _deal(self, kind: str, rows: Rows, tokens: float) -> Rows:
        queue = self._queues.get(kind, rows[:0])
        dealt: list[Rows] = []
        before = 0
        while True:
            if not len(queue):
                queue = self._pass(kind, rows)
            if not len(queue):  # a few rows with weights below one may all be left out
                queue = rows
            lengths = self._rows.lengths[queue[:_PIECE]].astype(np.int64)
            until = before + np.cumsum(lengths)
            num_dealt = int(np.searchsorted(until - lengths / 2, tokens, side="right"))
            dealt.append(queue[:num_dealt])
            queue = queue[num_dealt:]
            if num_dealt < len(lengths):
                self._queues[kind] = queue
                return np.concatenate(dealt)
            before = int(until[-1])

    def _pass(self, kind: str, rows: Rows) -> Rows:
        number = self._passes[kind] = self._passes.get(kind, -1) + 1
        random = Random(f"{self._seed}:{kind}:{number}")  # noqa: S311 - a reproducible order, no secret
        drawn = _draw(rows, self._rows, self._weights, random)
        shuffle(drawn, random)
        return drawn[::-1]


def _compute_places(lengths: NDArray[np.uint32], quota: float) -> NDArray[np.float64]:
    """Compute the middle of each row in a quota of tokens, from 0 to 1."""
    places, before = np.empty(len(lengths)), 0
    for first in range(0, len(lengths), _PIECE):
        own = lengths[first : first + _PIECE].astype(np.int64)
        ends = before + np.cumsum(own)
        places[first : first + _PIECE] = (ends - own + own / 2) / quota
        before = int(ends[-1])
    return places


def _draw(rows: Rows, columns: Columns, weights: NDArray[np.float64], random: Random) -> Rows:
    """Repeat each row by its weight: the whole part always, the fraction by chance."""
    drawn = [rows[:0]]
    for own in _pieces(rows):
        asked = weights[columns.kinds.codes[own], columns.categories.codes[own]]
        times, rest = asked.astype(np.int64), asked % 1
        is_open = rest > 0
        chances = np.fromiter((random.random() for _ in range(int(is_open.sum()))), np.float64)
        times[is_open] += chances < rest[is_open]
        drawn.append(np.repeat(own, times))
    return np.concatenate(drawn)


def shuffle(rows: Rows, random: Random) -> None:
    """Shuffle in place with the same result as `random.shuffle`, in half the time."""
    buffer: Any = rows
    order, draw = memoryview(buffer), random.getrandbits
    for bits in range(len(order).bit_length(), 1, -1):  # bits of the numbers below `place + 1`
        for place in range(min(len(order), 2**bits - 1) - 1, 2 ** (bits - 1) - 2, -1):
            other = draw(bits)
            while other > place:
                other = draw(bits)
            order[place], order[other] = order[other], order[place]


def _pieces(rows: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (rows[start : start + _PIECE] for start in range(0, len(rows), _PIECE))


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The micro-batches of a run in order, each with the indices of its rows in the columns.

    The last optimizer step may have fewer than `accumulation` micro-batches. The curriculum leaves `num_skipped` rows
    out of each epoch.
    """

    batches: Batches
    num_steps: int
    num_skipped: tuple[int, ...]

    def first(self, num_steps: int, accumulated: int) -> "BatchPlan":
        """Cut the plan after `num_steps`."""
        kept = self.batches[: num_steps * accumulated]
        return BatchPlan(kept, -(-len(kept) // accumulated), self.num_skipped)


def step_tokens(batches: Batches, lengths: NDArray[np.uint32], accumulated: int) -> NDArray[np.int64]:
    """Compute the tokens of each optimizer step of `accumulated` micro-batches, with padding."""
    padded = batches.padded_tokens(lengths)
    return np.add.reduceat(padded, np.arange(0, len(padded), accumulated)) if len(padded) else padded


def plan_run(rows: Columns, recipe: Recipe, continues: Continued | None = None) -> BatchPlan:
    """Fix the order of a run; the same arguments give the same order on every machine.

    A continued run has the order of a run that never stopped. It ignores `max_steps`, which the earlier run used up,
    and ends when its time is up, or after `MOST_PASSES` times its epochs.
    """
    num_shown, num_epochs, accumulated = 0, recipe.num_train_epochs, recipe.accumulation
    if continues is not None:
        num_shown, num_epochs = continues.num_batches, MOST_PASSES * num_epochs
    epochs: list[Batches] = []
    num_skipped: list[int] = []
    for epoch, skipped in _epochs(rows, recipe):
        rest, num_shown = epoch[num_shown:], max(0, num_shown - len(epoch))
        if not num_shown:
            epochs.append(rest)
            num_skipped.append(skipped)
        if len(num_skipped) == num_epochs:
            break
    counts = np.concatenate([np.diff(epoch.starts) for epoch in epochs])
    batches = Batches.of(np.concatenate([epoch.all_rows for epoch in epochs]), counts)
    plan = BatchPlan(batches, -(-len(batches) // accumulated), tuple(num_skipped))
    return plan if continues is not None or recipe.max_steps is None else plan.first(recipe.max_steps, accumulated)


def _epochs(rows: Columns, recipe: Recipe) -> Iterator[tuple[Batches, int]]:
    """Yield the micro-batches of one epoch after another, and the number of rows that the curriculum leaves out."""
    weights = _weights(rows, recipe)
    dealer = Dealer(rows, weights, recipe)
    for epoch in count():
        random = Random(f"{recipe.seed}:{epoch}")  # noqa: S311 - a reproducible order, no secret
        easy = np.flatnonzero(rows.difficulties <= find_hardest(epoch, recipe)).astype(np.uint32)
        if recipe.kind_shares:
            windows = dealer.windows(easy, easy_first=recipe.curriculum)
        else:
            windows = iter([_draw(easy, rows, weights, random)])
        shown, counts = array("I"), array("I")
        for window in windows:
            own, own_counts = _batches(window, rows, recipe, random)
            shown.frombytes(own.tobytes())
            counts.frombytes(own_counts.tobytes())
        yield Batches.of(np.asarray(shown), np.asarray(counts)), len(rows) - len(easy)


def is_validation_group(group: str | None, share: float, seed: int) -> bool:
    """Return whether the rows of a source file are for validation; rows without a file train."""
    if group is None:
        return False
    digest = hashlib.sha256(f"validation:{seed}:{group}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def find_hardest(epoch: int, recipe: Recipe) -> int:
    """Return the highest difficulty that an epoch (from 0) shows; with more stages than epochs, skip the first ones."""
    if not recipe.curriculum:
        return recipe.max_difficulty
    stages = recipe.curriculum_max_difficulty
    left_out = max(0, len(stages) - recipe.num_train_epochs)
    return stages[min(epoch + left_out, len(stages) - 1)]


def category_weights(counts: Mapping[Category, int], alpha: float) -> dict[Category, float]:
    """Compute the mean number of times that an epoch shows a row of each category.

    The share of a category becomes proportional to its number of rows to the power of alpha: 1 keeps the shares, 0
    makes them equal. An epoch keeps its size.

    Source:
        Exponential smoothing of shares, Conneau et al. 2020 (XLM-R), section 3.1.
    """
    smoothed = {category: count**alpha for category, count in counts.items()}
    scale = sum(counts.values()) / (sum(smoothed.values()) or 1)
    return {category: scale * smoothed[category] / count for category, count in counts.items()}


def _weights(rows: Columns, recipe: Recipe) -> NDArray[np.float64]:
    """Compute weights, of shape `(kinds, categories)`; if kinds have shares, within each kind."""
    kinds, categories = rows.kinds, rows.categories
    weights = np.ones((len(kinds.words), len(categories.words)))
    groups = [(slice(None), categories.codes)]
    if recipe.kind_shares:
        groups = [(slice(k, k + 1), categories.codes[kinds.codes == k]) for k in range(len(kinds.words))]
    for group, codes in groups:
        for category, weight in category_weights(_counts(codes), recipe.category_alpha).items():
            weights[group, category] = weight
    return weights


def _counts(codes: NDArray[np.uint16]) -> dict[int, int]:
    """Count the rows of each code, in order of first appearance, on which float sums depend."""
    found: dict[int, int] = {}
    for piece in _pieces(codes):
        values, first, counts = np.unique(piece, return_index=True, return_counts=True)
        for place in np.argsort(first):
            code = int(values[place])
            found[code] = found.get(code, 0) + int(counts[place])
    return found


def _batches(window: Rows, rows: Columns, recipe: Recipe, random: Random) -> tuple[Rows, NDArray[np.uint32]]:
    """Cut a window into micro-batches of similar lengths, for little padding; in a curriculum, easy ones come first.

    Returns the rows in order, and the number of rows of each micro-batch.
    """
    window = window.copy()
    shuffle(window, random)
    window = window[np.argsort(rows.lengths[window], kind="stable")]
    if recipe.curriculum:
        window = window[np.argsort(rows.difficulties[window], kind="stable")]
    counts = _cut(rows.lengths[window], recipe)
    if recipe.curriculum:
        return window, counts
    order = np.arange(len(counts), dtype=np.uint32)
    shuffle(order, random)
    starts, shuffled = np.cumsum(counts, dtype=np.uint32) - counts, counts[order]
    # Unsigned, so modulo 2^32 if a batch moves forward.
    moved = np.repeat(starts[order] - (np.cumsum(shuffled, dtype=np.uint32) - shuffled), shuffled)
    return window[moved + np.arange(len(window), dtype=np.uint32)], shuffled


def _cut(lengths: NDArray[np.uint32], recipe: Recipe) -> NDArray[np.uint32]:
    counts = array("I")
    most_rows, most_tokens = recipe.rows_at_once, recipe.tokens_at_once or np.inf
    numbers, start = np.arange(1, most_rows + 1), 0
    while start < len(lengths):
        padded = np.maximum.accumulate(lengths[start : start + most_rows]) * numbers[: len(lengths) - start]
        counts.append(max(1, int(np.searchsorted(padded, most_tokens, side="right"))))
        start += counts[-1]
    return np.array(counts, np.uint32)
