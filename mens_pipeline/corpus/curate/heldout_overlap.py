"""Counts of training rows that overlap with held-out tasks or the benchmark, computed once for each split."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.behaviour.repeats import TaskFunctions
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.overlap import HeldoutTasks
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy
from mens_pipeline.corpus.curate.split import group_of
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore

STAGE: Final = Stage("heldout_overlap", (__name__,))


def build_heldout_overlap(
    split: Artifact, policy: SplitPolicy, store: ArtifactStore, protected: Sequence[TrainingPair]
) -> Artifact:
    """Count the training rows of a split that share something with what judges, unless they were counted before.

    Returns:
        The manifest holds `num_train`, `num_heldout`, `pairs_of_heldout_files`, `near_copies` and `same_behaviour`.
    """

    def write(_folder: Path) -> dict[str, Any]:
        heldout = list(read_pairs(split.path / HELDOUT))
        judging = [*heldout, *protected]
        tasks = HeldoutTasks(judging, policy.max_overlap, policy.min_nodes)
        groups = {group_of(pair) for pair in heldout}
        train = [pair for name in split.manifest["train"] for pair in read_pairs(split.path / name)]
        with BehaviourWorkers() as workers:
            solved = sum(task is not None for task in TaskFunctions(judging, workers).repeated(train))
        return {
            "num_train": len(train),
            "num_heldout": len(heldout),
            "pairs_of_heldout_files": sum(group_of(pair) in groups for pair in train),
            "near_copies": sum(tasks.overlap(pair) is not None for pair in train),
            "same_behaviour": solved,
        }

    params = {"policy": policy.model_dump(), "protected": [task.model_dump(mode="json") for task in protected]}
    return STAGE.build(store, [split], params, write)[0]
