"""The order of a whole run, laid down before it begins: which rows stand in which micro-batch of which update.

A run that knows its whole order can be taken up at any update and go on as if it had never stopped.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from mens_pipeline.training.recipe import Recipe


class Planned(Protocol):
    """What is needed of a row to lay down an order; its length is in tokens."""

    @property
    def difficulty(self) -> int:
        """1 to 10."""
        ...

    @property
    def category(self) -> str:
        """Its construct or its task."""
        ...

    def __len__(self) -> int:
        """Tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The micro-batches of a run in order.

    Attributes:
        batches: Rows of each micro-batch, by their place in the examples.
        num_steps: Updates; each takes `gradient_accumulation_steps` micro-batches, the last perhaps fewer.
        num_skipped: Epoch -> rows that the curriculum leaves out of it.
    """

    batches: tuple[tuple[int, ...], ...]
    num_steps: int
    num_skipped: tuple[int, ...]


def plan_run(examples: Sequence[Planned], recipe: Recipe) -> Plan:
    """Lay down the order of a run; the same arguments give the same order on every machine.

    Args:
        examples: The rows that train.
        recipe: Sizes of micro-batches, epochs, shares of categories, curriculum, seed.
    """
    weights = category_weights([example.category for example in examples], recipe.category_alpha)
    batches: list[tuple[int, ...]] = []
    skipped = []
    for epoch in range(recipe.num_train_epochs):
        random = Random(f"{recipe.seed}:{epoch}")  # noqa: S311 - a reproducible order, no secret
        rows = [row for row, example in enumerate(examples) if example.difficulty <= hardest_of(epoch, recipe)]
        skipped.append(len(examples) - len(rows))
        batches += _epoch(_drawn(rows, examples, weights, random), examples, recipe, random)
    most = len(batches) if recipe.max_steps is None else recipe.max_steps * recipe.gradient_accumulation_steps
    kept = tuple(batches[:most])
    return Plan(kept, -(-len(kept) // recipe.gradient_accumulation_steps), tuple(skipped))


def hardest_of(epoch: int, recipe: Recipe) -> int:
    """The highest difficulty that an epoch shows; with fewer epochs than stages, the first stages are left out.

    Args:
        epoch: From 0.
        recipe: The curriculum, if any.
    """
    if not recipe.curriculum:
        return recipe.max_difficulty
    stages = recipe.curriculum_max_difficulty
    left_out = max(0, len(stages) - recipe.num_train_epochs)
    return stages[min(epoch + left_out, len(stages) - 1)]


def category_weights(categories: Sequence[str], alpha: float) -> dict[str, float]:
    """How often a row of each category comes in an epoch, on average.

    The share of a category is that of its rows to the power of alpha; an epoch keeps its size.

    Args:
        categories: Of each row.
        alpha: 1 leaves the shares as they are, 0 makes them equal.

    Source:
        Exponential smoothing of shares, Conneau et al. 2020 (XLM-R), section 3.1.
    """
    counts = Counter(categories)
    smoothed = {category: count**alpha for category, count in counts.items()}
    scale = len(categories) / (sum(smoothed.values()) or 1)
    return {category: scale * smoothed[category] / count for category, count in counts.items()}


def _drawn(rows: list[int], examples: Sequence[Planned], weights: dict[str, float], random: Random) -> list[int]:
    """Each row as often as its category asks for: the whole part always, the rest by chance."""
    drawn = []
    for row in rows:
        weight = weights[examples[row].category]
        rest = weight % 1
        drawn += [row] * (int(weight) + (rest > 0 and random.random() < rest))
    return drawn


def _epoch(rows: list[int], examples: Sequence[Planned], recipe: Recipe, random: Random) -> list[tuple[int, ...]]:
    """The micro-batches of one epoch: of like lengths, to pad little, and easy ones first in a curriculum."""
    random.shuffle(rows)
    rows.sort(key=lambda row: len(examples[row]))
    if recipe.curriculum:
        rows.sort(key=lambda row: examples[row].difficulty)
    batches = _cut(rows, examples, recipe)
    if not recipe.curriculum:
        random.shuffle(batches)
    return batches


def _cut(rows: list[int], examples: Sequence[Planned], recipe: Recipe) -> list[tuple[int, ...]]:
    """Micro-batches with no more rows, and with padding no more tokens, than the recipe allows."""
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
