"""Job of a training process that learns from preference pairs, and what it needs to begin."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import Field

from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.storage.jsonl import write_text
from mens_pipeline.storage.stage import Stage
from mens_pipeline.training.devices import Device
from mens_pipeline.training.job import Continued, TrainingJob
from mens_pipeline.training.prepare import PreparedRun, prepare_run
from mens_pipeline.training.presets import ResolvedRecipe

MODULE: Final = "mens_pipeline.training.preference.child"
"""Module of the training process."""

STAGE: Final = Stage("qlora_adapter", ("mens_pipeline.training.preference.train",), by_content=True)
"""The code that decides what comes of pairs, beside that of every training."""


class PreferencePair(TrainingPair):
    """A row of a train set whose response is preferred to another answer."""

    rejected: str = Field(description="The other answer, as it was written.")
    rejected_stopped: bool = Field(description="It ended by itself, so that its end is a part of it.")
    why: str = Field(description="What is known of the two, for people.")


class PreferenceJob(TrainingJob):
    """A run that learns from the pairs of `train_path`, one a line."""

    beta: float = Field(gt=0, description="How far it holds to the adapter that it goes on from.")


def prepare_preference(  # noqa: PLR0913 - all that decides a run
    resolved: ResolvedRecipe,
    pairs: Path,
    folder: Path | Callable[[str], Path],
    device: Device,
    *,
    beta: float,
    cache: Path,
    say: Callable[[str], None],
    continues: Continued,
) -> PreparedRun:
    """Prepare a run on pairs as `prepare_run` does any; `beta` says how far it holds to the adapter before.

    Raises:
        RefusedError: Something is not as it must be.
    """
    besides = {"preference": {"beta": beta, "code": STAGE.code_version}}
    run = prepare_run(
        resolved, pairs, folder, device, cache=cache, min_rows=1, say=say, continues=continues, besides=besides
    )
    job = PreferenceJob(**dict(run.job), beta=beta)
    write_text(run.job_path, job.model_dump_json(indent=2) + "\n")
    return replace(run, job=job)
