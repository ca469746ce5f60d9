"""How much a row counts: trajectory weighting."""

from typing import Final

from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.training.recipe import Recipe

_HIGHEST: Final = 8.0
_TRACES: Final = ("tool_trace", "trajectory")
_FAILURES: Final = ("fail", "error", "repair")


def row_weight(pair: TrainingPair, recipe: Recipe) -> float:
    """Return what the loss of a row is multiplied by; 1 unless `trajectory_weighting` is on, never above 8.

    Args:
        pair: A row.
        recipe: The boosts.
    """
    if not recipe.trajectory_weighting:
        return 1.0
    words = f"{pair.category} {pair.task_family}"
    weight = 1.0
    if any(part in words for part in _TRACES):
        weight *= recipe.trajectory_tool_trace_boost
    if any(part in words for part in _FAILURES):
        weight *= recipe.trajectory_failure_boost
    if pair.rating >= recipe.trajectory_quality_floor:
        weight *= recipe.trajectory_quality_boost
    return min(weight, _HIGHEST)
