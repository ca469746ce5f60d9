"""Weights of rows, and files that measure the loss."""

from typing import Any

import pytest

from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.training.examples import row_weight
from mens_pipeline.training.plan import is_validation_group
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.every import every


def _weight(recipe: dict[str, Any], **fields: Any) -> float:
    pair = TrainingPair(prompt="p", response="r", **fields)
    return row_weight(pair.category, pair.task_family, pair.rating, Recipe(**{**_BOOSTS, **recipe}))


_BOOSTS = {
    "trajectory_weighting": True,
    "trajectory_tool_trace_boost": 2.0,
    "trajectory_failure_boost": 3.0,
    "trajectory_quality_boost": 1.25,
}


_ALL: dict[str, Any] = {"category": "tool_trace_error", "rating": 5}


@every(
    "case",
    [
        ({}, {}, 1.0),
        ({}, {"category": "tool_trace"}, 2.0),
        ({}, {"task_family": "vox_trajectory_repair"}, 2.0 * 3.0),
        ({}, {"category": "trajectory"}, 2.0),
        ({}, {"category": "failure"}, 3.0),
        ({}, {"task_family": "error_fix"}, 3.0),
        ({}, {"category": "repair"}, 3.0),
        ({}, {"rating": 5}, 1.25),
        ({}, {"rating": 4}, 1.0),
        ({}, _ALL, 2.0 * 3.0 * 1.25),
        ({"trajectory_tool_trace_boost": 8.0}, _ALL, 8.0),
        ({"trajectory_quality_floor": 3}, {"rating": 2}, 1.0),
        ({"trajectory_quality_floor": 3}, {"rating": 3}, 1.25),
        ({"trajectory_quality_floor": 3}, {"rating": 4}, 1.25),
        ({"trajectory_weighting": False}, _ALL, 1.0),
        ({"trajectory_weighting": False}, {}, 1.0),
    ],
)
def test_boosts_multiply(case: tuple[dict[str, Any], dict[str, Any], float]) -> None:
    """Up to a weight of eight; the recipe decides which rating is high."""
    recipe, fields, expected = case

    assert _weight(recipe, **fields) == pytest.approx(expected)


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
