"""The order of a whole run, laid down before it begins: which rows stand in which micro-batch of which update.

A run that knows its whole order can be taken up at any update and go on as if it had never stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from mens_pipeline.training.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Plan:
    """The micro-batches of a run in order.

    Attributes:
        batches: Rows of each micro-batch, by their place in the examples.
        num_steps: Updates; each takes `gradient_accumulation_steps` micro-batches, the last perhaps fewer.
        num_skipped: Epoch -> rows that the curriculum leaves out.
    """

    batches: tuple[tuple[int, ...], ...]
    num_steps: int
    num_skipped: tuple[int, ...]


def plan_run(lengths: Sequence[int], difficulties: Sequence[int], recipe: Recipe) -> Plan:
    """Lay down the order of a run; the same arguments give the same order on every machine.

    Args:
        lengths: Tokens of each row.
        difficulties: Of each row, 1 to 10.
        recipe: Sizes of micro-batches, epochs, curriculum, seed.
    """
    batches: list[tuple[int, ...]] = []
    skipped = []
    for epoch in range(recipe.num_train_epochs):
        random = Random(f"{recipe.seed}:{epoch}")  # noqa: S311 - a reproducible order, no secret
        rows = [row for row in range(len(lengths)) if difficulties[row] <= hardest_of(epoch, recipe)]
        skipped.append(len(lengths) - len(rows))
        batches += _epoch(rows, lengths, difficulties, recipe, random)
    most = len(batches) if recipe.max_steps is None else recipe.max_steps * recipe.gradient_accumulation_steps
    kept = tuple(batches[:most])
    return Plan(kept, -(-len(kept) // recipe.gradient_accumulation_steps), tuple(skipped))


def hardest_of(epoch: int, recipe: Recipe) -> int:
    """The highest difficulty that an epoch shows.

    Args:
        epoch: From 0.
        recipe: The curriculum, if any.
    """
    if not recipe.curriculum:
        return recipe.max_difficulty
    stages = recipe.curriculum_max_difficulty
    return stages[min(epoch, len(stages) - 1)]


def _epoch(
    rows: list[int], lengths: Sequence[int], difficulties: Sequence[int], recipe: Recipe, random: Random
) -> list[tuple[int, ...]]:
    """The micro-batches of one epoch: of like lengths where there is a budget, easy ones first in a curriculum."""
    random.shuffle(rows)
    if recipe.max_tokens_per_batch is not None:
        rows.sort(key=lengths.__getitem__)
    if recipe.curriculum:
        rows.sort(key=difficulties.__getitem__)
    batches = _cut(rows, lengths, recipe)
    if not recipe.curriculum:
        random.shuffle(batches)
    return batches


def _cut(rows: list[int], lengths: Sequence[int], recipe: Recipe) -> list[tuple[int, ...]]:
    """Micro-batches with no more rows, and with padding no more tokens, than the recipe allows."""
    batches: list[tuple[int, ...]] = []
    batch: list[int] = []
    longest = 0
    for row in rows:
        grown = max(longest, lengths[row])
        is_full = len(batch) == recipe.per_device_train_batch_size
        is_heavy = recipe.max_tokens_per_batch is not None and grown * (len(batch) + 1) > recipe.max_tokens_per_batch
        if batch and (is_full or is_heavy):
            batches.append(tuple(batch))
            batch, grown = [], lengths[row]
        batch.append(row)
        longest = grown
    if batch:
        batches.append(tuple(batch))
    return batches
