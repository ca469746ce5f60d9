"""How much a row counts, and which files measure."""

from typing import Any

import pytest

from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.training.examples import row_weight
from mens_pipeline.training.plan import is_validation_group
from mens_pipeline.training.recipe import Recipe


def _weight(recipe: dict[str, Any], **fields: Any) -> float:
    pair = TrainingPair(prompt="p", response="r", **fields)
    return row_weight(pair.category, pair.task_family, pair.rating, Recipe(**recipe))


_BOOSTS = {
    "trajectory_weighting": True,
    "trajectory_tool_trace_boost": 2.0,
    "trajectory_failure_boost": 3.0,
    "trajectory_quality_boost": 1.25,
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 1.0),
        ({"category": "tool_trace"}, 2.0),
        ({"task_family": "vox_trajectory_repair"}, 2.0 * 3.0),
        ({"category": "trajectory"}, 2.0),
        ({"category": "failure"}, 3.0),
        ({"task_family": "error_fix"}, 3.0),
        ({"category": "repair"}, 3.0),
        ({"rating": 5}, 1.25),
        ({"rating": 4}, 1.0),
        ({"category": "tool_trace_error", "rating": 5}, 2.0 * 3.0 * 1.25),
    ],
)
def test_boosts_multiply(fields: dict[str, Any], expected: float) -> None:
    assert _weight(_BOOSTS, **fields) == pytest.approx(expected)


@pytest.mark.parametrize("fields", [{"category": "tool_trace_error", "rating": 5}, {}])
def test_without_trajectory_weighting_all_rows_weigh_the_same(fields: dict[str, Any]) -> None:
    assert _weight({**_BOOSTS, "trajectory_weighting": False}, **fields) == 1.0


def test_no_row_weighs_more_than_eight() -> None:
    recipe = {**_BOOSTS, "trajectory_tool_trace_boost": 8.0}

    assert _weight(recipe, category="tool_trace_error", rating=5) == 8.0


def test_the_recipe_decides_which_rating_is_high() -> None:
    recipe = {**_BOOSTS, "trajectory_quality_floor": 3}

    assert [_weight(recipe, rating=rating) for rating in (2, 3, 4)] == [1.0, 1.25, 1.25]


def test_about_the_share_of_files_measures() -> None:
    files = [f"src/{number}.vox" for number in range(2000)]
    few, many = ({file for file in files if is_validation_group(file, share, 42)} for share in (0.05, 0.2))

    assert 60 < len(few) < 140
    assert 320 < len(many) < 480
    assert few < many
    assert few != {file for file in files if is_validation_group(file, 0.05, 43)}


@pytest.mark.parametrize(("group", "share"), [(None, 0.49), ("src/a.vox", 0.0)])
def test_rows_without_a_file_and_recipes_without_a_share_only_train(group: str | None, share: float) -> None:
    assert not any(is_validation_group(group, share, seed) for seed in range(50))
