"""The order of a whole run, fixed before it begins: which rows stand in which micro-batch of which step.

A run that knows its whole order can be taken up at any step and go on as if it had never stopped.
"""

import hashlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from mens_pipeline.training.columns import Batches, Columns, Rows
from mens_pipeline.training.recipe import CODE, FROM_USERS, Continued, Recipe

_WINDOW: Final = 256
"""Rows among which micro-batches are formed: many enough to find rows of like length, and a small part of a run."""

MOST_PASSES: Final = 4
"""How often an epoch shows a kind at most; up to four passes repeated data is nearly as good as new (Muennighoff et al.
2023, arXiv:2305.16264)."""

_LEAST_REST: Final = 1e-6
"""A smaller rest of shares is an error of rounding."""

_PIECE: Final = 1 << 20
"""Rows for which a computation needs more than a few bytes each at once."""

Category = TypeVar("Category", str, int)


def shares_of(tokens: Mapping[str, int], named: Mapping[str, float]) -> dict[str, float]:
    """Return the share of the shown tokens that each kind gets.

    Of the shares that are `named`, at most 1 together, that of a kind that is not there goes to all others in
    proportion. Kinds that are not named share the rest in proportion to their `tokens`. Where there is no rest, each of
    them has the share of its tokens among all, which is cut from the named ones in proportion; completions that users
    accepted have `MOST_PASSES` times that, up to the share of `CODE`, so that even a short run shows all of them.

    Returns:
        Kind -> share; 1 together, unless every kind that is there was given 0.
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
    """Deals the rows of each kind pass by pass, each pass in a new order, and mixes the kinds by their shares."""

    def __init__(self, rows: Columns, weights: NDArray[np.float64], named: Mapping[str, float], seed: int) -> None:
        """Take the rows, how often each comes in a pass (see `_weights`), and the shares as `shares_of` does."""
        self._rows = rows
        self._weights = weights
        self._named = named
        self._seed = seed
        self._queues: dict[str, Rows] = {}
        self._passes: dict[str, int] = {}

    def windows(self, rows: Rows, *, easy_first: bool) -> Iterator[Rows]:
        """Yield the rows of an epoch in windows, in each of which every kind has its share of the tokens.

        An epoch has as many tokens as its rows have. A kind that runs out begins again until it was shown `MOST_PASSES`
        times; then it is missing, and the epoch is so much shorter. What an epoch does not show comes in the next one.

        Where easy rows come first, each epoch begins the passes of all kinds again.
        """
        codes, words = self._rows.kinds.codes[rows], self._rows.kinds.words
        there = {words[code]: rows[codes == code] for code in sorted(_counts(codes), key=words.__getitem__)}
        tokens = {kind: int(self._rows.lengths[own].sum()) for kind, own in there.items()}
        whole = sum(tokens.values())
        shown: list[Rows] = [np.empty(0, np.uint32)]
        places: list[NDArray[np.float64]] = [np.empty(0)]
        for kind, share in shares_of(tokens, self._named).items():
            if easy_first:
                self._queues.pop(kind, None)
            quota = share * whole
            dealt = self._deal(kind, there[kind], min(quota, MOST_PASSES * tokens[kind]))
            if easy_first:
                dealt = dealt[np.argsort(self._rows.difficulties[dealt], kind="stable")]
            if len(dealt):
                shown.append(dealt)
                places.append(_places_of(self._rows.lengths[dealt], quota))
        order = np.concatenate(shown)[np.argsort(np.concatenate(places), kind="stable")]
        number = max(1, round(len(order) / _WINDOW))
        for window in range(number):
            own = order[window * len(order) // number : (window + 1) * len(order) // number]
            if len(own):
                yield own

    def _deal(self, kind: str, rows: Rows, tokens: float) -> Rows:
        """Deal the next rows of a kind, as many as come nearest to a number of tokens."""
        queue = self._queues.get(kind, rows[:0])
        dealt: list[Rows] = []
        before = 0
        while True:
            if not len(queue):
                queue = self._pass(kind, rows)
            if not len(queue):  # of few rows, each of a weight below one, perhaps none was drawn
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


def _places_of(lengths: NDArray[np.uint32], quota: float) -> NDArray[np.float64]:
    """Return where the middle of each row lies in a quota of tokens, from 0 to 1."""
    places, before = np.empty(len(lengths)), 0
    for first in range(0, len(lengths), _PIECE):
        own = lengths[first : first + _PIECE].astype(np.int64)
        ends = before + np.cumsum(own)
        places[first : first + _PIECE] = (ends - own + own / 2) / quota
        before = int(ends[-1])
    return places


def _draw(rows: Rows, columns: Columns, weights: NDArray[np.float64], random: Random) -> Rows:
    """Return each row as often as its weight asks for: the whole part always, the rest by chance."""
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
    """Shuffle numbers in place as `random.shuffle` does, draw by draw, in half of its time."""
    buffer: Any = rows
    order, draw = memoryview(buffer), random.getrandbits
    for bits in range(len(order).bit_length(), 1, -1):  # of the numbers below `place + 1`
        for place in range(min(len(order), 2**bits - 1) - 1, 2 ** (bits - 1) - 2, -1):
            other = draw(bits)
            while other > place:
                other = draw(bits)
            order[place], order[other] = order[other], order[place]


def _pieces(rows: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (rows[start : start + _PIECE] for start in range(0, len(rows), _PIECE))


@dataclass(frozen=True, slots=True)
class Plan:
    """The micro-batches of a run in order.

    Attributes:
        batches: Rows of each micro-batch, by their place in the columns.
        num_steps: Optimizer steps; each takes `accumulation` micro-batches, the last perhaps fewer.
        num_skipped: Epoch -> rows that the curriculum leaves out of it.
    """

    batches: Batches
    num_steps: int
    num_skipped: tuple[int, ...]

    def first(self, num_steps: int, accumulated: int) -> "Plan":
        """Return the first steps of the plan."""
        kept = self.batches[: num_steps * accumulated]
        return Plan(kept, -(-len(kept) // accumulated), self.num_skipped)


def step_tokens(batches: Batches, lengths: NDArray[np.uint32], accumulated: int) -> NDArray[np.int64]:
    """Return tokens of each optimizer step of `accumulated` micro-batches, with padding."""
    padded = batches.padded_tokens(lengths)
    return np.add.reduceat(padded, np.arange(0, len(padded), accumulated)) if len(padded) else padded


def plan_run(rows: Columns, recipe: Recipe, continues: Continued | None = None) -> Plan:
    """Lay down the order of a run; the same arguments give the same order on every machine.

    A run that goes on after its end has the order as if it had never stopped. `max_steps` was for the run that ended;
    this one is ended by its time, or after `MOST_PASSES` times its epochs.
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
    plan = Plan(batches, -(-len(batches) // accumulated), tuple(num_skipped))
    return plan if continues is not None or recipe.max_steps is None else plan.first(recipe.max_steps, accumulated)


def _epochs(rows: Columns, recipe: Recipe) -> Iterator[tuple[Batches, int]]:
    """Yield the micro-batches of epoch after epoch without end, and how many rows the curriculum leaves out of each."""
    weights = _weights(rows, recipe)
    dealer = Dealer(rows, weights, recipe.kind_shares, recipe.seed)
    for epoch in count():
        random = Random(f"{recipe.seed}:{epoch}")  # noqa: S311 - a reproducible order, no secret
        easy = np.flatnonzero(rows.difficulties <= hardest_of(epoch, recipe)).astype(np.uint32)
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
    """Return whether the rows of a source file measure; all of one file do the same, those without one train."""
    if group is None:
        return False
    digest = hashlib.sha256(f"validation:{seed}:{group}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def hardest_of(epoch: int, recipe: Recipe) -> int:
    """Return the highest difficulty an epoch (from 0) shows; of more stages than epochs, the first are left out."""
    if not recipe.curriculum:
        return recipe.max_difficulty
    stages = recipe.curriculum_max_difficulty
    left_out = max(0, len(stages) - recipe.num_train_epochs)
    return stages[min(epoch + left_out, len(stages) - 1)]


def category_weights(counts: Mapping[Category, int], alpha: float) -> dict[Category, float]:
    """Return how often a row of each category comes in an epoch, on average.

    The share of a category is that of its rows, of which there are so many, to the power of alpha: with 1 the shares
    stay as they are, with 0 they become equal. An epoch keeps its size.

    Source:
        Exponential smoothing of shares, Conneau et al. 2020 (XLM-R), section 3.1.
    """
    smoothed = {category: count**alpha for category, count in counts.items()}
    scale = sum(counts.values()) / (sum(smoothed.values()) or 1)
    return {category: scale * smoothed[category] / count for category, count in counts.items()}


def _weights(rows: Columns, recipe: Recipe) -> NDArray[np.float64]:
    """Return how often a row of each kind and category (kinds, categories) comes in a pass.

    Where kinds have shares, a category is weighed among rows of its kind.
    """
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
    """Return how many rows have each code, in the order in which they first come: sums of floats depend on it."""
    found: dict[int, int] = {}
    for piece in _pieces(codes):
        values, first, counts = np.unique(piece, return_index=True, return_counts=True)
        for place in np.argsort(first):
            code = int(values[place])
            found[code] = found.get(code, 0) + int(counts[place])
    return found


def _batches(window: Rows, rows: Columns, recipe: Recipe, random: Random) -> tuple[Rows, NDArray[np.uint32]]:
    """Cut an epoch or a window into micro-batches of like lengths, to pad little; easy ones first in a curriculum.

    Returns:
        The rows in order, and how many each micro-batch has.
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
    # Modulo 2^32, where a batch moves to the front.
    moved = np.repeat(starts[order] - (np.cumsum(shuffled, dtype=np.uint32) - shuffled), shuffled)
    return window[moved + np.arange(len(window), dtype=np.uint32)], shuffled


def _cut(lengths: NDArray[np.uint32], recipe: Recipe) -> NDArray[np.uint32]:
    """Return how many rows each micro-batch has: no more, and with padding no more tokens, than the recipe allows."""
    counts = array("I")
    most_rows, most_tokens = recipe.rows_at_once, recipe.tokens_at_once or np.inf
    numbers, start = np.arange(1, most_rows + 1), 0
    while start < len(lengths):
        padded = np.maximum.accumulate(lengths[start : start + most_rows]) * numbers[: len(lengths) - start]
        counts.append(max(1, int(np.searchsorted(padded, most_tokens, side="right"))))
        start += counts[-1]
    return np.array(counts, np.uint32)
