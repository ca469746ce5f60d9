"""The split as an artifact: what trains, what judges, and what does neither; and what of it overlaps, counted."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.behaviour.repeats import TaskFunctions
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.overlap import HeldoutTasks
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy, ValidatePolicy
from mens_pipeline.corpus.curate.repetition import Repetition
from mens_pipeline.corpus.curate.split import SplitReport, group_of, split_pairs
from mens_pipeline.corpus.curate.validated_pairs import PairsDetails
from mens_pipeline.corpus.schema.training_pair import TrainingPair, read_pairs
from mens_pipeline.corpus.synthesis.tasks.draw import Side, heldout_tasks
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, Details

KIND: Final = "heldout_split"
STAGE: Final = Stage(KIND, (f"{__name__}:build_heldout_split",))
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
    """Split validated pairs, unless the same was done before; nothing near to `protected`, a benchmark, trains.

    Returns:
        The split, and whether it was reused. The folder holds what trains under the names of the sources,
        `heldout.jsonl`, `families.jsonl` and `aside.jsonl`; the manifest holds the counts.
    """
    names = list(PairsDetails.of(pairs).num_pairs)
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
        return split.report().model_dump()

    return STAGE.build(store, [pairs], params, write)


def family_pairs(policy: SplitPolicy) -> Iterator[TrainingPair]:
    """Yield synthetic tasks that judge: as many with new constants of a known task as of an unknown one."""
    drawn = _drawn_once(policy.seed, policy.num_family_tasks)
    for side, family in ((Side.KNOWN, NEW_CONSTANTS), (Side.UNKNOWN, UNKNOWN_TASK)):
        yield from (pair.model_copy(update={"task_family": family}) for pair in drawn[side])


_drawn_once: Final = cache(heldout_tasks)
"""The tasks of all splits of a process; running them takes seconds."""


class OverlapReport(Details):
    """Training rows that share something with what judges, among all rows."""

    num_train: int
    num_heldout: int
    pairs_of_heldout_files: int
    near_copies: int
    same_behaviour: int


OVERLAP_STAGE: Final = Stage("heldout_overlap", (f"{__name__}:build_heldout_overlap",))


def build_heldout_overlap(
    split: Artifact, policy: SplitPolicy, store: ArtifactStore, protected: Sequence[TrainingPair]
) -> Artifact:
    """Count in a manifest the training rows of a split that share something with what judges, unless that was done."""

    def write(_folder: Path) -> dict[str, Any]:
        heldout = list(read_pairs(split.path / HELDOUT))
        judging = [*heldout, *protected]
        tasks = HeldoutTasks(judging, policy.max_overlap, policy.min_nodes)
        groups = {group_of(pair) for pair in heldout}
        train = [pair for name in SplitReport.of(split).train for pair in read_pairs(split.path / name)]
        with BehaviourWorkers() as workers:
            solved = sum(task is not None for task in TaskFunctions(judging, workers).find_repeats(train))
        report = OverlapReport(
            num_train=len(train),
            num_heldout=len(heldout),
            pairs_of_heldout_files=sum(group_of(pair) in groups for pair in train),
            near_copies=sum(tasks.overlap(pair) is not None for pair in train),
            same_behaviour=solved,
        )
        return report.model_dump()

    params = {"policy": policy.model_dump(), "protected": [task.model_dump(mode="json") for task in protected]}
    return OVERLAP_STAGE.build(store, [split], params, write)[0]
