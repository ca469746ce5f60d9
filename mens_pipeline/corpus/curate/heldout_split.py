"""The split as an artifact: what trains, what judges, and what does neither."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy, ValidatePolicy
from mens_pipeline.corpus.curate.repetition import Repetition
from mens_pipeline.corpus.curate.split import split_pairs
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.corpus.synthesis.tasks.draw import Side, heldout_tasks
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore

KIND: Final = "heldout_split"
STAGE: Final = Stage(KIND, (__name__,))
HELDOUT: Final = "heldout.jsonl"
ASIDE: Final = "aside.jsonl"
FAMILIES: Final = "families.jsonl"
"""Synthetic tasks that judge and never train; their `task_family` says of which kind they are."""

NEW_CONSTANTS: Final = "new_constants"
"""The `task_family` of tasks of families that train, with constants that do not."""
UNKNOWN_TASK: Final = "unknown_task"
"""The `task_family` of tasks of families that never train."""


def build_heldout_split(
    pairs: Artifact,
    repeats: ValidatePolicy,
    policy: SplitPolicy,
    store: ArtifactStore,
    protected: Sequence[TrainingPair] = (),
) -> tuple[Artifact, bool]:
    """Split validated pairs, unless the same was done before.

    Nothing near to `protected`, the tasks of a benchmark, trains.

    Returns:
        The split, and whether it was reused. The folder holds what trains under the names of the sources,
        `heldout.jsonl`, `families.jsonl` and `aside.jsonl`; the manifest holds the counts.

    Raises:
        ConfigurationError: The store cannot be written.
    """
    names = list(pairs.manifest["num_pairs"])
    params = {
        "repeats": repeats.model_dump(),
        "policy": policy.model_dump(),
        "protected": [task.model_dump(mode="json") for task in protected],
    }

    def write(folder: Path) -> dict[str, Any]:
        sources = {name: list(read_pairs(pairs.path / name)) for name in names}
        with BehaviourWorkers() as workers:
            split = split_pairs(sources, Repetition(repeats), policy, workers, protected)
        for name, rows in split.train.items():
            write_jsonl(folder / name, rows)
        write_jsonl(folder / HELDOUT, split.heldout)
        write_jsonl(folder / FAMILIES, family_pairs(policy))
        write_jsonl(folder / ASIDE, split.aside)
        return split.account()

    return STAGE.build(store, [pairs], params, write)


def family_pairs(policy: SplitPolicy) -> Iterator[TrainingPair]:
    """Yield synthetic tasks that judge: as many with new constants of a known task as of an unknown one.

    Raises:
        RefusedError: There are not as many different ones.
    """
    drawn = _drawn(policy.seed, policy.num_family_tasks)
    for side, family in ((Side.KNOWN, NEW_CONSTANTS), (Side.UNKNOWN, UNKNOWN_TASK)):
        yield from (pair.model_copy(update={"task_family": family}) for pair in drawn[side])


@cache
def _drawn(seed: int, num_tasks: int) -> dict[Side, tuple[TrainingPair, ...]]:
    """Draw the tasks once for all splits of a process; running them takes seconds."""
    return heldout_tasks(seed, num_tasks)
