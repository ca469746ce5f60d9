"""The order of a whole run, fixed before it begins: which rows stand in which micro-batch of which step.

A run that knows its whole order can be taken up at any step and go on as if it had never stopped.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final, Protocol, TypeVar

from mens_pipeline.jobs.agent import Team
from mens_pipeline.training.recipe import Continued, Recipe

_WINDOW: Final = 256
"""Rows among which micro-batches are formed: many enough to find rows of like length, and a small part of a run."""

MOST_PASSES: Final = 4
"""How often an epoch shows a kind at most; up to four passes repeated data is nearly as good as new (Muennighoff et al.
2023, arXiv:2305.16264)."""


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


def shares_of(tokens: Mapping[str, int], named: Mapping[str, float]) -> dict[str, float]:
    """Return the share of the shown tokens that each kind gets.

    Of the shares that are `named`, at most 1 together, that of a kind that is not there goes to all others in
    proportion. Kinds that are not named share the rest in proportion to their `tokens`.

    Returns:
        Kind -> share; 1 together, unless every kind that is there was given 0.
    """
    others = sum(count for kind, count in tokens.items() if kind not in named)
    rest = max(0.0, 1 - sum(named.values()))
    wanted = {kind: named[kind] if kind in named else rest * count / others for kind, count in tokens.items()}
    whole = sum(wanted.values())
    return {kind: share / whole if whole else 0.0 for kind, share in wanted.items()}


class Dealer:
    """Deals the rows of each kind pass by pass, each pass in a new order, and mixes the kinds by their shares."""

    def __init__(
        self, examples: Sequence[Planned], weights: Sequence[float], named: Mapping[str, float], seed: int
    ) -> None:
        """Take the rows, how often each comes in a pass on average, and the shares as `shares_of` does."""
        self._examples = examples
        self._weights = weights
        self._named = named
        self._seed = seed
        self._queues: dict[str, list[int]] = {}
        self._passes: dict[str, int] = {}

    def windows(self, rows: Sequence[int], *, easy_first: bool) -> Iterator[list[int]]:
        """Yield the rows of an epoch in windows, in each of which every kind has its share of the tokens.

        An epoch has as many tokens as its rows have. A kind that runs out begins again until it was shown `MOST_PASSES`
        times; then it is missing, and the epoch is so much shorter. What an epoch does not show comes in the next one.

        Where easy rows come first, each epoch begins the passes of all kinds again.
        """
        kinds: dict[str, list[int]] = {}
        for row in rows:
            kinds.setdefault(self._examples[row].kind, []).append(row)
        tokens = {kind: sum(len(self._examples[row]) for row in kinds[kind]) for kind in sorted(kinds)}
        whole = sum(tokens.values())
        places: list[tuple[float, int]] = []
        for kind, share in shares_of(tokens, self._named).items():
            if easy_first:
                self._queues.pop(kind, None)
            quota = share * whole
            dealt = self._deal(kind, kinds[kind], min(quota, MOST_PASSES * tokens[kind]))
            if easy_first:
                dealt.sort(key=lambda row: self._examples[row].difficulty)
            before = 0
            for row in dealt:
                length = len(self._examples[row])
                places.append(((before + length / 2) / quota, row))
                before += length
        order = [row for _, row in sorted(places, key=lambda place: place[0])]
        count = max(1, round(len(order) / _WINDOW))
        for number in range(count):
            window = order[number * len(order) // count : (number + 1) * len(order) // count]
            if window:
                yield window

    def _deal(self, kind: str, rows: Sequence[int], tokens: float) -> list[int]:
        """Deal the next rows of a kind, as many as come nearest to a number of tokens."""
        queue = self._queues.setdefault(kind, [])
        dealt: list[int] = []
        count = 0.0
        while True:
            if not queue:
                queue += self._pass(kind, rows)
            length = len(self._examples[queue[-1]])
            if count + length / 2 > tokens:
                return dealt
            count += length
            dealt.append(queue.pop())

    def _pass(self, kind: str, rows: Sequence[int]) -> list[int]:
        number = self._passes[kind] = self._passes.get(kind, -1) + 1
        random = Random(f"{self._seed}:{kind}:{number}")  # noqa: S311 - a reproducible order, no secret
        drawn = draw(rows, self._weights, random)
        random.shuffle(drawn)
        return drawn


def draw(rows: Sequence[int], weights: Sequence[float], random: Random) -> list[int]:
    """Return each row as often as its weight asks for: the whole part always, the rest by chance."""
    drawn = []
    for row in rows:
        rest = weights[row] % 1
        drawn += [row] * (int(weights[row]) + (rest > 0 and random.random() < rest))
    return drawn


_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Plan:
    """The micro-batches of a run in order.

    Attributes:
        batches: Rows of each micro-batch, by their place in the examples.
        num_steps: Optimizer steps; each takes `accumulation` micro-batches, the last perhaps fewer.
        num_skipped: Epoch -> rows that the curriculum leaves out of it.
    """

    batches: tuple[tuple[int, ...], ...]
    num_steps: int
    num_skipped: tuple[int, ...]

    def first(self, num_steps: int, accumulated: int) -> "Plan":
        """Return the first steps of the plan."""
        kept = self.batches[: num_steps * accumulated]
        return Plan(kept, -(-len(kept) // accumulated), self.num_skipped)


def step_tokens(batches: Sequence[Sequence[int]], lengths: Sequence[int], accumulated: int) -> list[int]:
    """Return tokens of each optimizer step of `accumulated` micro-batches, with padding."""
    padded = [len(batch) * max(lengths[row] for row in batch) for batch in batches]
    return [sum(padded[start : start + accumulated]) for start in range(0, len(padded), accumulated)]


def plan_run(examples: Sequence[Planned], recipe: Recipe, continues: Continued | None = None) -> Plan:
    """Lay down the order of a run; the same arguments give the same order on every machine.

    A run that goes on after its end has the order as if it had never stopped. `max_steps` was for the run that ended;
    this one is ended by its time, or after `MOST_PASSES` times its epochs.
    """
    num_shown, num_epochs, accumulated = 0, recipe.num_train_epochs, recipe.accumulation
    if continues is not None:
        num_shown, num_epochs = continues.num_batches, MOST_PASSES * num_epochs
    batches: list[tuple[int, ...]] = []
    num_skipped: list[int] = []
    for epoch, skipped in _epochs(examples, recipe):
        rest, num_shown = epoch[num_shown:], max(0, num_shown - len(epoch))
        if not num_shown:
            batches += rest
            num_skipped.append(skipped)
        if len(num_skipped) == num_epochs:
            break
    plan = Plan(tuple(batches), -(-len(batches) // accumulated), tuple(num_skipped))
    return plan if continues is not None or recipe.max_steps is None else plan.first(recipe.max_steps, accumulated)


def _epochs(examples: Sequence[Planned], recipe: Recipe) -> Iterator[tuple[list[tuple[int, ...]], int]]:
    """Yield the micro-batches of epoch after epoch without end, and how many rows the curriculum leaves out of each."""
    weights = _row_weights(examples, recipe)
    dealer = Dealer(examples, weights, recipe.kind_shares, recipe.seed)
    for epoch in count():
        random = Random(f"{recipe.seed}:{epoch}")  # noqa: S311 - a reproducible order, no secret
        rows = [row for row, example in enumerate(examples) if example.difficulty <= hardest_of(epoch, recipe)]
        if recipe.kind_shares:
            windows = dealer.windows(rows, easy_first=recipe.curriculum)
        else:
            windows = iter([draw(rows, weights, random)])
        batches = [batch for window in windows for batch in _batches(window, examples, recipe, random)]
        yield batches, len(examples) - len(rows)


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


def category_weights(categories: Sequence[str], alpha: float) -> dict[str, float]:
    """Return how often a row of each category comes in an epoch, on average.

    The share of a category is that of its rows to the power of alpha: with 1 the shares stay as they are, with 0 they
    become equal. An epoch keeps its size.

    Source:
        Exponential smoothing of shares, Conneau et al. 2020 (XLM-R), section 3.1.
    """
    counts = Counter(categories)
    smoothed = {category: count**alpha for category, count in counts.items()}
    scale = len(categories) / (sum(smoothed.values()) or 1)
    return {category: scale * smoothed[category] / count for category, count in counts.items()}


def _row_weights(examples: Sequence[Planned], recipe: Recipe) -> list[float]:
    """Return how often each row comes in a pass, by its category; among rows of its kind where kinds have shares."""
    groups = [example.kind if recipe.kind_shares else "" for example in examples]
    weights = {}
    for group in set(groups):
        categories = [example.category for example, own in zip(examples, groups, strict=True) if own == group]
        weights[group] = category_weights(categories, recipe.category_alpha)
    return [weights[group][example.category] for example, group in zip(examples, groups, strict=True)]


def _batches(rows: list[int], examples: Sequence[Planned], recipe: Recipe, random: Random) -> list[tuple[int, ...]]:
    """Cut an epoch or a window into micro-batches of like lengths, to pad little; easy ones first in a curriculum."""
    random.shuffle(rows)
    rows.sort(key=lambda row: len(examples[row]))
    if recipe.curriculum:
        rows.sort(key=lambda row: examples[row].difficulty)
    batches = _cut(rows, examples, recipe)
    if not recipe.curriculum:
        random.shuffle(batches)
    return batches


def _cut(rows: list[int], examples: Sequence[Planned], recipe: Recipe) -> list[tuple[int, ...]]:
    """Return micro-batches with no more rows, and with padding no more tokens, than the recipe allows."""
    batches: list[tuple[int, ...]] = []
    batch: list[int] = []
    longest, most_rows, most_tokens = 0, recipe.rows_at_once, recipe.tokens_at_once
    for row in rows:
        grown = max(longest, len(examples[row]))
        is_full = len(batch) == most_rows
        is_heavy = most_tokens is not None and grown * (len(batch) + 1) > most_tokens
        if batch and (is_full or is_heavy):
            batches.append(tuple(batch))
            batch, grown = [], len(examples[row])
        batch.append(row)
        longest = grown
    if batch:
        batches.append(tuple(batch))
    return batches


def share_of(batches: Sequence[_Item], accumulated: int, team: Team) -> list[_Item | None]:
    """Return the micro-batches of one process: of every optimizer step each n-th, where n processes train together.

    Returns:
        As many in every process; None where a step has none left for this one.
    """
    own: list[_Item | None] = []
    for start in range(0, len(batches), accumulated):
        step = batches[start : start + accumulated]
        mine = step[team.rank :: team.size]
        own += [*mine, *([None] * (-(-len(step) // team.size) - len(mine)))]
    return own
