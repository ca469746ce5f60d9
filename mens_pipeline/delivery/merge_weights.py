"""What becomes of upstream's `merge-weights`, which merged checkpoints of the model trained from scratch."""

from pathlib import Path
from typing import Final

from mens_pipeline.delivery.merge_source import SCRATCH, lane_of
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.prepare import manifest_of

_ADVICE: Final = {
    SCRATCH: "a model of the scratch lane is whole as it is, and there is nothing to merge. Use its folder.",
    None: "an adapter is merged by another command. Run: mens merge --run-dir {run}",
}
"""Lane of a run -> why its weights are not merged here, and what to do."""


def refuse_merge_weights(run: Path) -> RefusedError:
    """Why the weights of a run are not merged by that name.

    Args:
        run: Its folder.

    Raises:
        RefusedError: There is no run.
    """
    lane = lane_of(run)
    if lane != SCRATCH:
        manifest_of(run)
        lane = None
    return RefusedError(f"{run}: {_ADVICE[lane].format(run=run)}")
