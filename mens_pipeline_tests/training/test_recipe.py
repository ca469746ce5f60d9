"""Values that a recipe accepts, and its errors about others."""

from typing import Any

import pytest
from pydantic import ValidationError

from mens_pipeline.training.recipe import Recipe


def test_defaults_are_valid() -> None:
    recipe = Recipe()

    assert (recipe.lora_r, recipe.lora_alpha, recipe.target_modules) == (16, 32, "all-linear")
    assert (recipe.quantization, recipe.bnb_4bit_use_double_quant) == (None, True)
    assert recipe.model_name_or_path is None
    with pytest.raises(ValidationError, match="frozen"):
        recipe.lora_r = 2  # type: ignore[misc]


def test_every_field_has_a_description() -> None:
    assert all(field.description for field in Recipe.model_fields.values())


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"lora_rr": 4}, "lora_rr"),
        ({"lora_r": 0}, "lora_r"),
        ({"lora_dropout": 1.0}, "lora_dropout"),
        ({"quantization": "fp4"}, "quantization"),
        ({"max_length": 15}, "max_length"),
        ({"num_train_epochs": 0}, "num_train_epochs"),
        ({"max_minutes": 0}, "max_minutes"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"max_grad_norm": float("inf")}, "max_grad_norm"),
        ({"lr_scheduler_type": "polynomial"}, "lr_scheduler_type"),
        ({"min_rating": 6}, "min_rating"),
        ({"category_filter": 3}, "category_filter"),
        ({"curriculum_max_difficulty": ()}, "curriculum_max_difficulty"),
        ({"trajectory_quality_boost": 8.1}, "trajectory_quality_boost"),
        ({"validation_split_ratio": 0.5}, "validation_split_ratio"),
        ({"seed": 2**32}, "seed"),
        ({"token_shares": {"task": 1.1}}, "token_shares.task"),
        ({"token_shares": {"task": -0.1}}, "token_shares.task"),
        ({"token_shares": "task=half"}, "token_shares.task"),
        ({"token_shares": "task"}, "token_shares.task"),
        ({"token_shares": {"task": 0.7, "raw": 0.5}}, r"token_shares add up to 1\.2, at most 1 is allowed"),
        (
            {"quantization": "bf16", "bnb_4bit_compute_dtype": "float32"},
            "quantization is bf16, but bnb_4bit_compute_dtype",
        ),
        ({"max_tokens_per_batch": 511}, "max_tokens_per_batch is 511, less than one row of max_length 512"),
        ({"min_difficulty": 6, "max_difficulty": 5}, "min_difficulty 6 is above max_difficulty 5"),
        ({"target_modules": ""}, 'target_modules is empty; write "all-linear" or names of layers'),
        (
            {"max_tokens_per_batch": 16, "min_difficulty": 9, "max_difficulty": 2, "target_modules": ","},
            "max_tokens_per_batch.*; min_difficulty.*; target_modules is empty",
        ),
        ({"lora_r": 0, "max_length": "long", "nothing": 1}, r"lora_r\n(.*\n)+max_length\n(.*\n)+nothing\n"),
    ],
)
def test_rejects_invalid_values(values: dict[str, Any], problem: str) -> None:
    """Alone, or together with other fields; all errors are reported at once."""
    with pytest.raises(ValidationError, match=rf"(?m)^(  Value error, )?{problem}"):
        Recipe.model_validate(values)


@pytest.mark.parametrize(("minimum", "maximum"), [(1, 1), (5, 5), (1, 10)])
def test_accepts_values_at_their_limits(minimum: int, maximum: int) -> None:
    recipe = Recipe(min_difficulty=minimum, max_difficulty=maximum, max_length=64, max_tokens_per_batch=64)

    assert recipe.max_tokens_per_batch == recipe.max_length


def test_lists_and_shares_may_be_written_as_text() -> None:
    recipe = Recipe.model_validate(
        {
            "target_modules": "q_proj, v_proj,",
            "category_filter": " actor ,mcp",
            "curriculum_max_difficulty": "3, 6,9",
        }
    )

    assert recipe.target_modules == ("q_proj", "v_proj")
    assert recipe.category_filter == ("actor", "mcp")
    assert recipe.curriculum_max_difficulty == (3, 6, 9)
    assert (
        Recipe.model_validate({"target_modules": "all-linear", "category_filter": "", "token_shares": ""}) == Recipe()
    )
    shares = {"task": 0.7, "raw": 0.1, "repair": 0.2}
    assert Recipe.model_validate({"token_shares": "task=0.7, raw = 0.1,repair=0.2,"}).token_shares == shares


def test_a_recipe_survives_a_file() -> None:
    recipe = Recipe(target_modules=("q_proj",), max_minutes=0.5, category_filter=("actor",), learning_rate=1.5e-4)

    assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe
