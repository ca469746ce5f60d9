"""Reads `training_manifest.json`, which may come from a stranger with the run that it lies in."""

import json
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.files import read_regular
from mens_pipeline.training.manifest import METHOD

_MOST_BYTES: Final = 16 * 2**20
_SHOWN: Final = 5
_ADVICE: Final = "Name the folder of a complete run of `mens train`."

_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Word = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f]*$")]


class _Part(BaseModel):
    """Fields of a manifest that are read, with their types; others are ignored."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, protected_namespaces=(), allow_inf_nan=False)


class _Base(_Part):
    name: _Word
    revision: _Word | None
    path: _Word
    origin: _Word
    sha256: _Digest
    licence: _Word | None
    architecture: _Word
    num_values: _Count


class _Recipe(_Part):
    bnb_4bit_quant_type: _Word
    bnb_4bit_use_double_quant: bool
    lora_r: _Count
    lora_alpha: _Count
    target_modules: _Word | list[_Word]
    learning_rate: float
    lr_scheduler_type: _Word


class _Kind(_Part):
    tokens_shown: _Count
    share: float
    epochs: float


class _Result(_Part):
    compute_dtype: _Word
    num_train: _Count
    num_rows: _Count
    longest: _Count
    num_steps: _Count
    trained_tokens: _Count
    seconds: float
    train_loss: float
    validation_loss: float | None
    kinds: dict[_Word, _Kind] | None = None  # runs before kinds were counted have none


class _Manifest(_Part):
    name: str = Field(pattern="^[0-9A-Za-z._-]{1,128}$")
    base_model: _Base
    preset: _Word | None
    recipe: _Recipe
    result: _Result
    system_prompt: str
    train_file: _Word
    train_sha256: _Digest
    heldout_sha256: _Digest | None
    contract_digest: _Digest
    vcs_sha: _Word | None


def read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of a run, and check the type of everything that judging, merging, serving and cards read.

    Raises:
        RefusedError: It is not there, is no JSON, is of another method, or lacks something or has it in another form;
            the message names where.
    """
    try:
        manifest: dict[str, Any] = json.loads(read_regular(path, _MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        found = (error.strerror or "not readable") if isinstance(error, OSError) else f"no JSON ({error})"
        raise RefusedError(f"{path}: {found}. {_ADVICE}") from error
    found = manifest.get("backend", "nothing") if isinstance(manifest, dict) else "nothing"
    if found != METHOD:
        raise RefusedError(f"{path}: backend is {str(found)[:40]}, expected {METHOD}. {_ADVICE}")
    try:
        _Manifest.model_validate(manifest)
    except ValidationError as error:
        mistakes = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:_SHOWN]]
        more = f"; and {error.error_count() - _SHOWN} more" if error.error_count() > _SHOWN else ""
        raise RefusedError(f"{path}: {'; '.join(mistakes)}{more}. {_ADVICE}") from error
    return manifest
