"""Job of a training process that learns from preference pairs."""

from typing import Final

from pydantic import Field

from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.storage.stage import Stage
from mens_pipeline.training.job import TrainingJob
from mens_pipeline.training.prepare import Special

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


def preference(beta: float) -> Special:
    """Return how a run learns from pairs, that holds so far to the adapter that it goes on from."""
    return Special("preference", PreferenceJob, {"beta": beta}, STAGE)
