"""Shapes of models, their sizes, and consistent recipes."""

from dataclasses import asdict
from typing import Any

import pytest

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.scratch.recipe import SHAPES, ScratchConfig, ScratchRecipe, Shape


@pytest.mark.seed_row(54)
def test_the_full_model_has_the_specified_shape() -> None:
    assert asdict(SHAPES[ScratchConfig.DEFAULT]) == {
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "hidden_size": 512,
        "intermediate_size": 2048,
        "dropout": 0.1,
        "max_position_embeddings": 512,
        "vocab_size": 133,
    }
    assert SHAPES[ScratchConfig.DEFAULT].num_parameters == ScratchRecipe().shape.num_parameters == 38_227_968
    assert [ScratchRecipe().rate, ScratchRecipe(learning_rate=0.1).rate] == [5e-4, 0.1]


def test_parameters_are_counted_part_by_part() -> None:
    attention, feed_forward, norms = 4 * (4 + 2), (6 + 3) + (6 + 2), 2 * 4
    embeddings, last_norm, head = 7 * 2 + 5 * 2, 4, 7 * 2
    shape = Shape(1, 1, 2, 3, 0.0, 5, 7)

    small = SHAPES[ScratchConfig.SMALL]
    assert (small.num_parameters, small.max_position_embeddings, small.vocab_size) == (892_928, 512, 133)
    assert shape.num_parameters == attention + feed_forward + norms + embeddings + last_norm + head


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_length": 600}, "max_length is 600, and the model has 512 positions"),
        ({"max_tokens_per_batch": 100}, "max_tokens_per_batch is 100, less than one row of max_length 512"),
        ({"config": "huge", "sed": 1}, r"config: Input should be 'default' or 'small'.*sed: unknown"),
    ],
)
def test_an_inconsistent_recipe_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"recipe: {message}.* Correct these values"):
        ScratchRecipe.from_values(values)
