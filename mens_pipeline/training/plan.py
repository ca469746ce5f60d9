"""The order of a whole run, fixed before it begins: which rows stand in which micro-batch of which step.

A run that knows its whole order can be taken up at any step and go on as if it had never stopped.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Protocol

from mens_pipeline.training.job import Continued
from mens_pipeline.training.recipe import Recipe
from mens_pipeline.training.token_shares import MOST_PASSES, Dealer, Dealt, draw


class Planned(Dealt, Protocol):
    """Fields of a row that the plan needs; its length is in tokens."""

    @property
    def category(self) -> str:
        """Its construct or its task."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The micro-batches of a run in order.

    Attributes:
        batches: Rows of each micro-batch, by their place in the examples.
        num_steps: Optimizer steps; each takes `gradient_accumulation_steps` micro-batches, the last perhaps fewer.
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
    """Lay down the order of a run; the same arguments give the same order on every machine."""
    if continues is not None:
        return plan_further(examples, recipe, continues.num_batches)
    plan = _plan(islice(_epochs(examples, recipe), recipe.num_train_epochs), recipe)
    return plan if recipe.max_steps is None else plan.first(recipe.max_steps, recipe.gradient_accumulation_steps)


def plan_further(examples: Sequence[Planned], recipe: Recipe, num_shown: int) -> Plan:
    """Lay down how a run goes on that has come to its end: its order as if it had never stopped.

    `max_steps` was for the run that ended; this one is ended by its time, or after `MOST_PASSES` times its epochs.

    Of the run `num_shown` micro-batches were shown.
    """
    epochs: list[tuple[list[tuple[int, ...]], int]] = []
    for batches, skipped in _epochs(examples, recipe):
        rest, num_shown = batches[num_shown:], max(0, num_shown - len(batches))
        if not num_shown:
            epochs.append((rest, skipped))
        if len(epochs) == MOST_PASSES * recipe.num_train_epochs:
            break
    return _plan(epochs, recipe)


def _plan(epochs: Iterable[tuple[list[tuple[int, ...]], int]], recipe: Recipe) -> Plan:
    shown, skipped = zip(*epochs, strict=True)
    batches = tuple(batch for epoch in shown for batch in epoch)
    return Plan(batches, -(-len(batches) // recipe.gradient_accumulation_steps), skipped)


def _epochs(examples: Sequence[Planned], recipe: Recipe) -> Iterator[tuple[list[tuple[int, ...]], int]]:
    """Yield the micro-batches of epoch after epoch without end, and how many rows the curriculum leaves out of each."""
    weights = _row_weights(examples, recipe)
    dealer = Dealer(examples, weights, recipe.token_shares, recipe.seed)
    for epoch in count():
        random = Random(f"{recipe.seed}:{epoch}")  # noqa: S311 - a reproducible order, no secret
        rows = [row for row, example in enumerate(examples) if example.difficulty <= hardest_of(epoch, recipe)]
        drawn = (
            dealer.windows(rows, easy_first=recipe.curriculum)
            if recipe.token_shares
            else iter((draw(rows, weights, random),))
        )
        batches = [batch for window in drawn for batch in _batches(window, examples, recipe, random)]
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

    The share of a category is that of its rows to the power of alpha; an epoch keeps its size.

    With an alpha of 1 the shares stay as they are, with 0 they become equal.

    Source:
        Exponential smoothing of shares, Conneau et al. 2020 (XLM-R), section 3.1.
    """
    counts = Counter(categories)
    smoothed = {category: count**alpha for category, count in counts.items()}
    scale = len(categories) / (sum(smoothed.values()) or 1)
    return {category: scale * smoothed[category] / count for category, count in counts.items()}


def _row_weights(examples: Sequence[Planned], recipe: Recipe) -> list[float]:
    """Return how often each row comes in a pass, by its category; among rows of its kind where kinds have shares."""
    groups = [example.kind if recipe.token_shares else "" for example in examples]
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
    longest = 0
    for row in rows:
        grown = max(longest, len(examples[row]))
        is_full = len(batch) == recipe.per_device_train_batch_size
        is_heavy = recipe.max_tokens_per_batch is not None and grown * (len(batch) + 1) > recipe.max_tokens_per_batch
        if batch and (is_full or is_heavy):
            batches.append(tuple(batch))
            batch, grown = [], len(examples[row])
        batch.append(row)
        longest = grown
    if batch:
        batches.append(tuple(batch))
    return batches
