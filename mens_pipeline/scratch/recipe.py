"""The recipe of a run of the scratch lane, and the shapes of its models."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.scratch.tokenizer import VOCABULARY
from mens_pipeline.storage.validation import errors_in
from mens_pipeline.training.recipe import Recipe


class ScratchConfig(StrEnum):
    """Named sizes of a model."""

    DEFAULT = "default"
    SMALL = "small"


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a VoxTransformer, a GPT-2 with a separate head.

    Dropout applies to the weights of attention, and to the outputs of both parts of a block.
    """

    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    hidden_size: int = 512
    intermediate_size: int = 2048
    dropout: float = 0.1
    max_position_embeddings: int = 512
    vocab_size: int = len(VOCABULARY)

    @property
    def num_parameters(self) -> int:
        """Parameters of the model, computed without the deep learning stack."""
        width, inner = self.hidden_size, self.intermediate_size
        attention = 4 * (width * width + width)
        feed_forward = width * inner + inner + inner * width + width
        norm = 2 * width
        embeddings = (self.vocab_size + self.max_position_embeddings) * width
        head = self.vocab_size * width
        return self.num_hidden_layers * (attention + feed_forward + 2 * norm) + embeddings + norm + head


SHAPES: Final = {
    ScratchConfig.DEFAULT: Shape(),
    ScratchConfig.SMALL: Shape(num_hidden_layers=4, num_attention_heads=4, hidden_size=128, intermediate_size=512),
}
"""`default` is the full model with 38,227,968 parameters; `small` learns in seconds, for experiments."""

_OF_THE_ORDER: Final = {
    *("max_length", "per_device_train_batch_size", "max_tokens_per_batch", "gradient_accumulation_steps"),
    *("num_train_epochs", "max_steps", "validation_split_ratio", "seed"),
}

_RATES: Final = {ScratchConfig.DEFAULT: 5e-4, ScratchConfig.SMALL: 2e-3}


class ScratchRecipe(BaseModel):
    """Settings of a run, with the names of the QLoRA recipe; lengths in tokens, times in minutes, sizes in rows."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    config: ScratchConfig = Field(default=ScratchConfig.DEFAULT, description="The shape of the model.")
    max_length: int = Field(default=512, ge=16, description="Tokens of a row; longer rows do not train.")
    min_rating: int = Field(default=3, ge=0, le=5, description="Rows with a lower rating do not train; 0: all rows.")
    validation_split_ratio: float = Field(
        default=0.05, ge=0, lt=0.5, description="Share of source files that do not train and give the validation loss."
    )

    lora_r: int = Field(default=8, ge=1, le=512, description="Rank of the adapter, if a model is adapted.")
    per_device_train_batch_size: int = Field(default=32, ge=1, le=1024, description="Most rows in a micro-batch.")
    max_tokens_per_batch: int | None = Field(
        default=2048, ge=16, description="Tokens of a micro-batch, padding included; rows of similar length share one."
    )
    gradient_accumulation_steps: int = Field(default=1, ge=1, le=1024, description="Micro-batches in a step.")
    num_train_epochs: int = Field(default=10, ge=1, le=1000, description="Passes over the train set.")
    max_steps: int | None = Field(default=None, ge=1, description="Most optimizer steps.")
    max_minutes: float | None = Field(default=None, gt=0, description="Most minutes of training, without loading.")

    learning_rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Peak learning rate of AdamW; unset: 5e-4, or 2e-3 for the small model.",
    )
    warmup_steps: int = Field(default=100, ge=0, description="Steps up to the peak rate, at most a tenth of all.")
    weight_decay: float = Field(default=0.1, ge=0, le=1, description="Weight decay of AdamW.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Norm that gradients are clipped to.")

    save_steps: int = Field(default=100, ge=1, description="Steps between checkpoints.")
    save_total_limit: int = Field(default=3, ge=1, description="Checkpoints to keep, for resuming and averaging.")
    seed: int = Field(default=42, ge=0, lt=2**32, description="Seed of the initial weights and the order of rows.")

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "ScratchRecipe":
        """Build a recipe from a user's values; raise ConfigurationError with all errors in it."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigurationError(f"recipe: {errors_in(error)}. Correct these values.") from error

    @property
    def shape(self) -> Shape:
        """Sizes of the model."""
        return SHAPES[self.config]

    @property
    def rate(self) -> float:
        """The peak learning rate."""
        return _RATES[self.config] if self.learning_rate is None else self.learning_rate

    def plan(self) -> Recipe:
        """Return the fields that decide the order of rows, as a `Recipe`."""
        return Recipe(**self.model_dump(include=_OF_THE_ORDER))

    @model_validator(mode="after")
    def _fits_together(self) -> "ScratchRecipe":
        errors = []
        if self.max_length > self.shape.max_position_embeddings:
            most = self.shape.max_position_embeddings
            errors.append(f"max_length is {self.max_length}, and the model has {most} positions")
        if self.max_tokens_per_batch is not None and self.max_tokens_per_batch < self.max_length:
            budget, row = self.max_tokens_per_batch, self.max_length
            errors.append(f"max_tokens_per_batch is {budget}, less than one row of max_length {row}")
        if errors:
            raise ValueError("; ".join(errors))
        return self
