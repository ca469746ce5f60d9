"""Rows as a plan sees them, and pairs encoded as for training."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.models.chat import Tokenizer
from mens_pipeline.models.infill import choose_order
from mens_pipeline.training.examples import Examples, make_examples
from mens_pipeline.training.plan import Batches, BatchPlan, build_columns, plan_run
from mens_pipeline.training.recipe import Continued, Recipe
from mens_pipeline.training.train_rows import encode_pairs


@dataclass(frozen=True)
class Row:
    """What the plan needs of a row; its length is in tokens."""

    length: int
    difficulty: int = 5
    category: str = "function"
    kind: str = "vox_codegen"

    def __len__(self) -> int:
        return self.length


def plan_of(rows: Iterable[Row], recipe: Recipe, continues: Continued | None = None) -> BatchPlan:
    """Plan a run on some rows."""
    return plan_run(build_columns(rows), recipe, continues)


def batches_of(*batches: tuple[int, ...]) -> Batches:
    """Micro-batches of these rows, as a plan holds them."""
    rows = [row for batch in batches for row in batch]
    return Batches.of(np.array(rows, np.uint32), np.array([*map(len, batches)], np.uint32))


def continued_at(num_batches: int) -> Continued:
    """A run that showed this many batches, with suffixes first."""
    return Continued(
        adapter=Path("none"),
        adapter_sha256="0" * 64,
        num_batches=num_batches,
        num_steps=0,
        seconds=0.0,
        infill_order="suffix_first",
    )


def encode_examples(pairs: Iterable[TrainingPair], recipe: Recipe, tokenizer: Tokenizer, system: str) -> Examples:
    """Encode pairs as one shard, and return the examples that a recipe shows of it."""
    shard = encode_pairs(pairs, tokenizer, system, recipe.infill_window, choose_order(tokenizer))
    return make_examples([shard], recipe)
