"""What a run says of its plan, in a line."""

from typing import Any

import pytest

from mens_pipeline.training.told import told_plan


def _event(**fields: Any) -> dict[str, Any]:
    usual = {"num_steps": 150, "target_steps": 150, "end_seconds": 540.0, "budget_seconds": 1200.0, "reason": None}
    return {**usual, **fields}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"budget_seconds": None}, "150 steps, about 9 min"),
        ({}, "150 steps, about 9 min; budget 20 min"),
        ({"end_seconds": 90.0}, "150 steps, about 1.5 min; budget 20 min"),
        (
            {
                "num_steps": 118,
                "end_seconds": 1190.0,
                "reason": "150 steps would take 25.4 of 20.0 min, at 10.16 s a step",
            },
            "118 of 150 steps, about 20 min; budget 20 min: 150 steps would take 25.4 of 20.0 min, at 10.16 s a step",
        ),
    ],
)
def test_a_plan_says_how_many_steps_and_how_long(fields: dict[str, Any], line: str) -> None:
    """And why there are fewer than the recipe asks for."""
    assert told_plan(_event(**fields)) == line
