"""`adapter_config.json` as training writes it: read before PEFT, which takes patterns, code paths and any number."""

import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.prepare import CONFIGURATION, WEIGHTS
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.validation import errors_in
from mens_pipeline.training.safetensors_header import shapes_in

_ADVICE: Final = "Name the run that it was trained in."
_KIND: Final = "LORA"
_LONGEST: Final = 1_000_000
"""Bytes of the file."""

_FIRST_HALF: Final = ".lora_A.weight"
_PlainName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,200}$")]


class AdapterConfig(BaseModel):
    """Configuration of an adapter of this project; every other option of PEFT must be absent, or off."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    peft_type: Literal["LORA"]
    r: int = Field(ge=1, le=4_096, description="The rank.")
    lora_alpha: float = Field(
        default=1, gt=0, le=1_000_000, description="Over the rank: what the adapter is scaled by."
    )
    lora_dropout: float = Field(default=0, ge=0, lt=1)
    target_modules: Literal["all-linear"] | list[_PlainName] = Field(
        default="all-linear", description="Names of layers; PEFT takes any other string for a regular expression."
    )
    task_type: Literal["CAUSAL_LM"] | None = None
    bias: Literal["none"] = "none"
    init_lora_weights: bool = Field(default=True, description="Any other way to begin is a text or a computation.")
    inference_mode: bool = True
    base_model_name_or_path: str | None = None
    revision: str | None = None
    peft_version: str | None = None
    megatron_core: Literal["megatron.core"] = "megatron.core"
    qalora_group_size: int = Field(default=16, description="Of no effect, since `use_qalora` is off.")

    @model_validator(mode="before")
    @classmethod
    def _without_what_is_off(cls, values: Any) -> Any:
        """Leave out what is null, false or empty, which newer and older versions of PEFT write for what they know."""
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if name in cls.model_fields or not _is_off(value)}


def read_adapter_config(adapter: Path) -> AdapterConfig:
    """Read what an adapter says of itself, and see that its weights are of the rank that it names.

    Raises:
        RefusedError: It is missing, is not what training writes, or its weights are of another rank.
    """
    path = adapter / CONFIGURATION
    try:
        values = json.loads(read_regular(path, _LONGEST))
    except (OSError, ValueError, RecursionError) as error:
        found = error.strerror if isinstance(error, OSError) and error.strerror else "no JSON"
        raise RefusedError(f"{path}: {found}. {_ADVICE}") from error
    kind = values.get("peft_type") if isinstance(values, dict) else None
    if isinstance(kind, str) and kind != _KIND:
        advice = "Only LoRA adapters are merged, judged and served."
        raise RefusedError(f"{path}: peft_type is {kind[:100]}, expected {_KIND}. {advice}")
    try:
        config = AdapterConfig.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise RefusedError(f"{path}: not what `mens train` writes ({errors_in(error)[:300]}). {_ADVICE}") from error
    ranks = {shape[0] for name, shape in shapes_in(adapter / WEIGHTS).items() if name.endswith(_FIRST_HALF) and shape}
    if ranks - {config.r}:
        found = ", ".join(map(str, sorted(ranks)))
        raise RefusedError(f"{path}: r is {config.r}, {WEIGHTS} holds matrices of rank {found}. {_ADVICE}")
    return config


def _is_off(value: Any) -> bool:
    return value is None or value is False or value in ({}, [])
