"""The recipe of a training run, with the names of TRL and PEFT, and its job for a process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mens_pipeline.corpus.infill import ACCEPTED, INFILL
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.protocol import Job
from mens_pipeline.models.infill import Order
from mens_pipeline.storage.kinds import AdapterFile
from mens_pipeline.storage.validation import Share, Strict

MAX_DIFFICULTY: Final = 10
BY_MEMORY: Final = ("quantization", "checkpoint_every_n_layers")
"""Fields that depend on the memory of the device unless they are set."""
CONTRACT: Final = AdapterFile.CONTRACT
PREFLIGHT: Final = AdapterFile.PREFLIGHT
FROM_USERS: Final = frozenset((ACCEPTED, "telemetry"))
"""Kinds of completions that users accepted."""
CODE: Final = "vox_codegen"
"""The kind of programs of a workspace."""
_ROUNDING: Final = 1e-9
_ACCUMULATED: Final = 4
"""Default number of micro-batches in a step."""


class Recipe(BaseModel):
    """Settings of one run; lengths are in tokens, times in minutes, sizes in rows."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False, use_attribute_docstrings=True
    )

    model_name_or_path: str | None = Field(default=None, min_length=1)
    """Base model: a folder, or a name on the Hub; unset: the default of the device."""
    model_revision: str | None = Field(default=None, min_length=1)
    """Branch, tag or commit of the base."""

    lora_r: int = Field(default=16, ge=1, le=512)
    """Rank of the adapter."""
    lora_alpha: int = Field(default=32, ge=1, le=1024)
    """Scale of the adapter, divided by its rank."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of adapter inputs left out."""
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the layers that get an adapter; all-linear: every linear layer except the head."""
    quantization: Literal["nf4", "bf16"] | None = None
    """Precision of the base: four bits (QLoRA) or bfloat16; unset: bf16 on a GPU with enough memory, else nf4."""
    bnb_4bit_compute_dtype: Literal["auto", "float32", "bfloat16", "int8"] = "auto"
    """Dtype of computations with nf4. int8, only on CPUs: float32, but products with the base in eight bits. auto:
    bfloat16 if the device has it natively, else int8 on a CPU with AVX2, else float32. With float32, a CPU also
    evaluates and serves the adapter without eight bits."""
    bnb_4bit_use_double_quant: bool = True
    """Whether the scales are quantised as well."""

    max_length: int = Field(default=512, ge=16, le=131_072)
    """Tokens of a row; longer rows do not train."""
    per_device_train_batch_size: int = Field(default=4, ge=1, le=1024)
    """Most rows in a micro-batch."""
    tokens_per_step: int | None = Field(default=None, ge=16)
    """Tokens of an optimizer step, padding included, over all devices."""
    max_tokens_per_batch: int | None = Field(default=None, ge=16)
    """Tokens that a device holds at once, padding included; rows of similar length share a micro-batch."""
    gradient_accumulation_steps: int | None = Field(default=None, ge=1, le=1024)
    """Micro-batches in a step on one device; unset: as many as tokens_per_step needs, else 4."""
    num_train_epochs: int = Field(default=3, ge=1, le=1000)
    """Passes over the train set."""
    max_steps: int | None = Field(default=None, ge=1)
    """Most optimizer steps."""
    max_minutes: float | None = Field(default=None, gt=0)
    """Most minutes of training, without loading."""

    devices: int = Field(default=1, ge=1, le=64)
    """GPUs, or processes on a CPU, that share each step."""

    learning_rate: float = Field(default=2e-4, gt=0, le=1)
    """Peak learning rate of AdamW."""
    lora_plus_ratio: float = Field(default=1.0, ge=1, le=64)
    """Learning rate of the B matrices over that of the A matrices (LoRA+)."""
    lr_scheduler_type: Literal["cosine", "linear", "constant_with_warmup"] = "cosine"
    """Schedule of the learning rate after the warmup."""
    warmup_steps: int = Field(default=100, ge=0)
    """Steps up to the peak learning rate, at most a tenth of all."""
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    """Weight decay of AdamW."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Norm that gradients are clipped to."""

    min_rating: int = Field(default=3, ge=1, le=5)
    """Rows with a lower rating do not train."""
    category_filter: tuple[str, ...] = ()
    """Parts of categories to train on; empty: all rows."""
    min_difficulty: int = Field(default=1, ge=1, le=MAX_DIFFICULTY)
    """Easier rows do not train."""
    max_difficulty: int = Field(default=MAX_DIFFICULTY, ge=1, le=MAX_DIFFICULTY)
    """Harder rows do not train."""
    category_alpha: Share = 1.0
    """Exponent for the shares of categories; below 1, rare categories gain."""
    token_shares: dict[str, Share] = Field(
        default={},
        description="Share of the tokens for each kind of row (task_family), up to 1 in total; other kinds split the "
        "rest, or keep the share of their tokens if there is none.",
    )
    infill_share: float | None = Field(default=None, ge=0, lt=1)
    """Share of the tokens that complete code at a cursor; other kinds keep their proportions."""
    infill_window: int = Field(default=192, ge=16, le=131_072)
    """Tokens around a cursor, before and after together."""
    curriculum: bool = False
    """Whether easy rows come first, and hard ones in later epochs."""
    curriculum_max_difficulty: tuple[int, ...] = Field(default=(4, 7, 10), min_length=1)
    """Hardest rows of each epoch; the last value applies to all later epochs."""
    trajectory_weighting: bool = False
    """Whether the boosts below weight rows in the loss."""
    trajectory_tool_trace_boost: float = Field(default=1.1, gt=0, le=8)
    """Weight of tool traces."""
    trajectory_failure_boost: float = Field(default=1.15, gt=0, le=8)
    """Weight of rows about failures."""
    trajectory_quality_boost: float = Field(default=1.05, gt=0, le=8)
    """Weight of rows with a high rating."""
    trajectory_quality_floor: int = Field(default=5, ge=1, le=5)
    """Lowest rating that counts as high."""
    validation_split_ratio: float = Field(default=0.05, ge=0, lt=0.5)
    """Share of source files that do not train and give the validation loss."""

    checkpoint_every_n_layers: int | None = Field(default=None, ge=0, le=1024)
    """Recompute the activations of every n-th layer to save memory; 0: of none; unset: of as few as the GPU needs."""
    save_steps: int = Field(default=50, ge=1)
    """Steps between checkpoints."""
    logging_steps: int = Field(default=1, ge=1)
    """Steps between logged metrics."""
    seed: int = Field(default=42, ge=0, lt=2**32)
    """Seed of the initial adapter and of the order of rows."""

    @field_validator("target_modules", "category_filter", "curriculum_max_difficulty", mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        """Split lists written with commas, as flags and environment variables are."""
        if isinstance(value, str) and value != "all-linear":
            return tuple(_parts(value))
        return value

    @field_validator("token_shares", mode="before")
    @classmethod
    def _shares_from_text(cls, value: object) -> object:
        if isinstance(value, str):
            return {name.strip(): share.strip() for name, _, share in (part.partition("=") for part in _parts(value))}
        return value

    @property
    def accumulation(self) -> int:
        """Micro-batches in a step over all devices, at least one for each."""
        return max(self.devices, self._step[0])

    @property
    def tokens_at_once(self) -> int | None:
        """Most tokens of a micro-batch, padding included, an even part of the step; a longer row is one by itself."""
        tokens = self._step[1]
        return None if tokens is None else -(-tokens // self.accumulation)

    @property
    def rows_at_once(self) -> int:
        """Most rows in a micro-batch."""
        return max(1, self.per_device_train_batch_size * self._step[0] // self.accumulation)

    @property
    def _step(self) -> tuple[int, int | None]:
        """Micro-batches in a step on one device, and most tokens of the step, if limited."""
        number, most, tokens = self.gradient_accumulation_steps, self.max_tokens_per_batch, self.tokens_per_step
        if number is None and tokens is not None:
            return -(-tokens // (most or tokens)), tokens
        number = number or _ACCUMULATED
        return number, None if most is None else number * most

    @property
    def recomputed_layers(self) -> str:
        """Layers that recompute their activations: `none`, `all`, `1 in 2`."""
        every_n = self.checkpoint_every_n_layers or 0
        return {0: "none", 1: "all"}.get(every_n, f"1 in {every_n}")

    @property
    def kind_shares(self) -> dict[str, float]:
        """Shares of the shown tokens by kind: `token_shares` and that of infill rows."""
        if self.infill_share is None:
            return self.token_shares
        others = {kind: share * (1 - self.infill_share) for kind, share in self.token_shares.items() if kind != INFILL}
        return {**others, INFILL: self.infill_share, **({} if self.infill_share else {ACCEPTED: 0.0})}

    @model_validator(mode="after")
    def _fits_together(self) -> "Recipe":
        errors = []
        if self.max_tokens_per_batch is not None and self.max_tokens_per_batch < self.max_length:
            budget, row = self.max_tokens_per_batch, self.max_length
            errors.append(f"max_tokens_per_batch is {budget}, less than one row of max_length {row}")
        if self.quantization == "bf16" and self.bnb_4bit_compute_dtype in {"float32", "int8"}:
            found = f"quantization is bf16, but bnb_4bit_compute_dtype {self.bnb_4bit_compute_dtype}"
            errors.append(f"{found}; leave one of them out")
        if self.min_difficulty > self.max_difficulty:
            errors.append(f"min_difficulty {self.min_difficulty} is above max_difficulty {self.max_difficulty}")
        if sum(self.token_shares.values()) > 1 + _ROUNDING:
            errors.append(f"token_shares add up to {sum(self.token_shares.values()):g}, at most 1 is allowed")
        if self.target_modules == ():
            errors.append('target_modules is empty; write "all-linear" or names of layers')
        if errors:
            raise ValueError("; ".join(errors))
        return self


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def refuse_sharding(environment: Mapping[str, str]) -> None:
    """Raise RefusedError for variables of accelerate that shard the base over several devices."""
    for name in ("FSDP", "DeepSpeed"):
        variable = f"ACCELERATE_USE_{name.upper()}"
        if environment.get(variable, "").lower() in {"1", "true", "yes", "on"}:
            found = f"{name} would shard the base, but each device must hold all of it"
            raise RefusedError(f"{variable}: {found}. Unset it, and use --devices N.")


class Continued(Strict):
    """Adapter and state of a finished run to continue."""

    adapter: Path = Field(description="File with its weights.")
    adapter_sha256: str = Field(description="SHA-256 of the weights, hexadecimal.")
    num_batches: int = Field(ge=0, description="Micro-batches so far.")
    num_steps: int = Field(ge=0, description="Optimizer steps so far.")
    seconds: float = Field(ge=0, description="Training time so far.")
    infill_order: Order = Field(description="Side of a cursor that comes first in its prompts.")


class CommonJob(Job):
    """Fields of a run of either lane."""

    train_path: Path = Field(description="The train set, JSON lines.")
    device: str = Field(description="cuda, mps or cpu.")
    compute_dtype: str = Field(description="Precision of the computation: float32, bfloat16 or int8.")
    system_prompt: str = Field(description="The system prompt.")
    contract_digest: str = Field(description="Hash of everything that determines the run.")


class TrainingJob(CommonJob):
    """A training run with every setting fixed."""

    kind: Literal["train"] = "train"
    recipe: Recipe
    rows_path: Path = Field(description="Folder of Arrow shards with the tokenized rows.")
    base_path: Path = Field(description="Folder of the base model.")
    base_name: str = Field(description="Name of the base model in the files of the adapter.")
    base_revision: str | None = Field(description="Commit of the base on the Hub; None for a folder or a package.")
    infill_order: Order = Field(description="Side of a cursor that comes first in prompts.")
    continues: Continued | None = Field(default=None, description="The finished run to continue, if any.")

    @property
    def dtype(self) -> Literal["float32", "bfloat16"]:
        """Dtype of activations, before products in eight bits round them."""
        return "bfloat16" if self.compute_dtype == "bfloat16" else "float32"
