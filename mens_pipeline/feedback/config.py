"""`config/feedback.yaml`: how a model learns from its own completions, and how long that may take."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from mens_pipeline.inference.generation import Decoding
from mens_pipeline.storage.validation import Strict


class Method(StrEnum):
    """Rows that an adapter is trained further on."""

    RAFT = "raft"
    """Accepted completions among rows of the train set: rejection sampling."""
    CONTROL = "control"
    """Rows of the train set alone, to compare with."""


class FeedbackConfig(Strict):
    """Settings of sampling, selection and training of a round."""

    most_prompts: int = Field(default=250, ge=1, description="Executable prompts of the train set that are asked.")
    samples: int = Field(default=4, ge=2, le=64, description="Completions of each prompt.")
    temperature: float = Field(default=0.7, gt=0, le=2, description="At which they are drawn.")
    top_p: float = Field(default=0.95, gt=0, le=1, description="Share of probability that is sampled from.")
    max_new_tokens: int = Field(
        default=128,
        ge=16,
        le=8_192,
        description="Tokens of a completion; prompts with a longer reference are not asked.",
    )
    prompts_at_once: int = Field(
        default=24, ge=1, description="Prompts that one process is asked; what an interruption loses at most."
    )
    sampling_minutes: float = Field(default=4.0, gt=0, description="Minutes after which no further prompt is asked.")
    per_prompt: int = Field(default=2, ge=1, description="Accepted completions of a prompt at most.")
    least_rows: int = Field(default=8, ge=0, description="Accepted completions without which nothing is trained.")
    training_minutes: float = Field(default=4.0, gt=0, description="Minutes of training.")
    raft_learning_rate: float = Field(default=3e-4, gt=0, le=1, description="Of raft and control, at its highest.")
    token_shares: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(
        default={"feedback": 0.25, "task": 0.45, "observed": 0.15},
        description="Kind of row -> share of the tokens shown by raft; `feedback` are accepted completions. The "
        "control shows the other kinds in the same proportion.",
    )
    seed: int = Field(
        default=1337, ge=0, lt=2**31, description="Decides which prompts are asked, the draws, and the order."
    )

    @property
    def decoding(self) -> Decoding:
        """Decoding options of the samples."""
        return Decoding(
            max_new_tokens=self.max_new_tokens,
            num_samples=self.samples,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
        )

    def with_minutes(self, minutes: float | None) -> "FeedbackConfig":
        """Return a copy whose sampling and training take some minutes together, in the proportion they had."""
        if minutes is None:
            return self
        factor = minutes / (self.sampling_minutes + self.training_minutes)
        changes = {name: factor * getattr(self, name) for name in ("sampling_minutes", "training_minutes")}
        return self.model_copy(update=changes)

    def of_control(self, seconds_sampling: float) -> "FeedbackConfig":
        """Return a copy for a control, which trains for the time that sampling took as well."""
        return self.model_copy(update={"training_minutes": self.training_minutes + seconds_sampling / 60})
