"""Job of a training process that learns from rewards, and the bases that a CPU is too slow for."""

from pathlib import Path
from typing import Final

from pydantic import Field

from mens_pipeline.errors import RefusedError
from mens_pipeline.feedback.config import FeedbackConfig
from mens_pipeline.storage.stage import Stage
from mens_pipeline.training.job import TrainingJob
from mens_pipeline.training.prepare import Special
from mens_pipeline.training.safetensors_header import num_values_in

MODULE: Final = "mens_pipeline.feedback.grpo.child"
"""Module of the training process."""

REWARDS: Final = "rewards.jsonl"
"""In the folder of a run: a line for each step, with every answer, its reward and why."""

STAGE: Final = Stage("qlora_adapter", ("mens_pipeline.feedback.grpo.train",), by_content=True)
"""The code that decides what comes of rewards, beside that of every training."""

_MOST_ON_CPU: Final = 10_000_000
"""Largest base, in parameters, that a CPU can sample from in every step."""


class GrpoJob(TrainingJob):
    """A run that answers the rows of `train_path`, each several times, and learns from what the answers are worth."""

    num_generations: int = Field(ge=2, description="Answers to each prompt in a step.")
    temperature: float = Field(gt=0, description="At which they are drawn.")
    top_p: float = Field(gt=0, le=1, description="Share of probability that is sampled from.")
    max_new_tokens: int = Field(ge=1, description="Tokens of an answer at most.")


def refuse_slow_device(base: Path, device: str) -> None:
    """Refuse a training on rewards that would take a CPU days.

    Raises:
        RefusedError: It is a CPU, and the base is larger than one that tests use.
    """
    values = sum(map(num_values_in, base.glob("*.safetensors")))
    if device == "cpu" and values > _MOST_ON_CPU:
        found = f"found a base of {values / 1e6:.0f} million parameters on a CPU"
        expected = f"at most {_MOST_ON_CPU // 1_000_000} million there: grpo writes new answers in every step"
        raise RefusedError(f"{base}: {found}, expected {expected}. Take a GPU, or --method raft or dpo.")


def rewards(config: FeedbackConfig) -> Special:
    """Return how a run learns from rewards; a step takes `gradient_accumulation_steps` prompts."""
    fields = {
        "num_generations": config.samples,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "max_new_tokens": config.max_new_tokens,
    }
    return Special("grpo", GrpoJob, fields, STAGE)
