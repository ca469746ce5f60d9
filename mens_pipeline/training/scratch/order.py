"""Order of training rows and choice of validation rows of a scratch run, fixed before it begins."""

from dataclasses import dataclass, replace

from mens_pipeline.errors import RefusedError
from mens_pipeline.training.plan import is_validation_group, plan_run
from mens_pipeline.training.scratch.data import JsonlDataLoader
from mens_pipeline.training.scratch.recipe import ScratchRecipe


@dataclass(frozen=True, slots=True)
class Order:
    """The rows of a run by their place in the loader."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    batches: tuple[tuple[int, ...], ...]
    num_steps: int

    def first(self, num_steps: int, accumulated: int) -> "Order":
        """Return the first steps of the order."""
        return replace(self, batches=self.batches[: num_steps * accumulated], num_steps=num_steps)


def lay_down(loader: JsonlDataLoader, recipe: ScratchRecipe) -> Order:
    """Fix the order of a run; the same arguments give the same order on every machine.

    Raises:
        RefusedError: No row is left to train on.
    """
    share, seed = recipe.validation_split_ratio, recipe.seed
    measures = [is_validation_group(entry.group, share, seed) for entry in loader.entries]
    train = tuple(row for row, is_measured in enumerate(measures) if not is_measured)
    validation = tuple(row for row, is_measured in enumerate(measures) if is_measured)
    plan = plan_run([loader.entries[row] for row in train], recipe.plan())
    if not plan.batches:
        left_out = ", ".join(f"{count} {reason}" for reason, count in loader.skipped.items()) or "none"
        raise RefusedError(f"no row trains (left out: {left_out}). Raise max_length, or extract more data.")
    batches = tuple(tuple(train[row] for row in batch) for batch in plan.batches)
    return Order(train, validation, batches, plan.num_steps)


def account_of(loader: JsonlDataLoader, order: Order) -> dict[str, object]:
    """Return the counts of what is shown, in JSON types."""
    return {
        **loader.account(),
        "num_train": len(order.train),
        "num_validation": len(order.validation),
        "num_tokens": sum(len(loader.entries[row]) for row in order.train),
        "num_supervised_tokens": sum(loader.entries[row].num_completion for row in order.train),
    }
