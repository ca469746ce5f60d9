"""A trained adapter, read, checked and hashed once, with its training manifest."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mens_pipeline.corpus.infill import ACCEPTED, INFILL
from mens_pipeline.errors import RefusedError
from mens_pipeline.models.base import Base, Count, Digest, Recorded, RecordedPath, Word, read_object, shapes_in
from mens_pipeline.models.infill import SUFFIX_FIRST, Order
from mens_pipeline.storage.files import is_out_of_place
from mens_pipeline.storage.kinds import AdapterFile, ArtifactFile
from mens_pipeline.storage.store import digest_of, key_of
from mens_pipeline.storage.validation import errors_in, list_errors, newer_format

ADAPTER: Final = AdapterFile.ADAPTER
"""Subfolder of a run with the adapter in PEFT's format."""

TELEMETRY: Final = AdapterFile.TELEMETRY
"""Log file of a run, like that of any other job: one event per line."""

MANIFEST: Final = AdapterFile.MANIFEST
CARD: Final = "README.md"
WEIGHTS: Final = "adapter_model.safetensors"
CONFIGURATION: Final = "adapter_config.json"
METHOD: Final = "qlora"
SCHEMA_VERSION: Final = 8
"""Schema version of the training manifest."""

_MOST_BYTES: Final = 16 * 2**20
_SHOWN: Final = 5
_ADVICE: Final = "Name the folder of a complete run of `mens train`."


class TrainedRecipe(Recorded):
    """The fields of a recipe that later steps read; other fields are kept."""

    quantization: Literal["nf4", "bf16"]
    bnb_4bit_use_double_quant: bool
    bnb_4bit_compute_dtype: Word = "auto"
    lora_r: Count
    lora_alpha: Count
    target_modules: Word | list[Word]
    learning_rate: float
    lr_scheduler_type: Word
    max_minutes: float | None = None
    devices: Count
    infill_window: Count

    @property
    def method(self) -> str:
        """The quantisation of the base, for people."""
        double = " with double quantisation" if self.bnb_4bit_use_double_quant else ""
        return "LoRA: base in bfloat16" if self.quantization == "bf16" else f"QLoRA: NF4{double}"


class ShownKind(Recorded):
    """Use of one kind of row in training: tokens, share of all tokens, epochs, and rows."""

    tokens_shown: Count
    share: float
    epochs: float
    rows: Count = 0
    rows_too_long: Count = 0


class RowsNotShown(Recorded):
    """Rows that training left out, by reason. Later steps read only `too_long`; other reasons are kept."""

    too_long: Count


class TrainingResult(Recorded):
    """The fields of the result of training that later steps read; other fields are kept."""

    device: Word
    compute_dtype: Literal["float32", "bfloat16", "int8"]
    num_train: Count
    num_rows: Count
    not_shown: RowsNotShown
    num_tokens: Count
    num_supervised_tokens: Count
    longest: Count
    num_steps: Count
    planned_steps: Count
    trained_tokens: Count
    seconds: float
    train_loss: float
    validation_loss: float | None
    kept_step: Count | None = None
    num_trained_parameters: Count
    num_adapter_matrices: Count
    num_changed_matrices: Count
    frozen_sha256: Word
    plan: dict[Word, Any]
    kinds: dict[Word, ShownKind]
    num_batches: Count

    @property
    def dtype(self) -> Literal["float32", "bfloat16"]:
        """Dtype of the base before it was quantised."""
        return "bfloat16" if self.compute_dtype == "bfloat16" else "float32"


class Before(Recorded):
    """Earlier training of the adapter that this run continues."""

    adapter_sha256: Digest
    num_batches: Count
    num_steps: Count
    seconds: float


class TrainingManifest(Recorded):
    """`training_manifest.json`: inputs, recipe and result of a training run."""

    manifest_schema_version: Count
    backend: Literal["qlora"] = Field(description="Name of the trainer, as in `--backend`.")
    adapter_method: Literal["qlora", "lora"] = Field(description="`qlora`: base in four bits; `lora`: in bfloat16.")
    tokenizer: Word
    name: str = Field(pattern="^[0-9A-Za-z._-]{1,128}$")
    vcs_sha: Word | None
    vox_backend: Word | None = None
    base_model: Base
    recipe: TrainedRecipe
    recipe_origins: dict[Word, Word] = Field(default={}, description="Origin of each value of the recipe.")
    recipe_name: Word | None = Field(default=None, description="Name of the recipe, with the run's changes.")
    preset: Word | None
    domain: Word | None = None
    continues: Before | None = Field(default=None, description="The run that this one continues.")
    contract_digest: Digest
    train_file: RecordedPath = Field(description="Path of the train set on the training machine.")
    train_sha256: Digest
    heldout_sha256: Digest | None
    system_prompt: str
    chat_template: str
    infill_order: Order = Field(
        default=SUFFIX_FIRST,
        description="Side of the cursor that comes first in a prompt; defaults to the suffix.",
    )
    libraries: dict[Word, Word] = Field(default={}, description="Versions of libraries that affect training.")
    result: TrainingResult

    @property
    def is_taught(self) -> bool:
        """Whether training included infill rows."""
        shown = [kind for name, kind in self.result.kinds.items() if name in {INFILL, ACCEPTED}]
        return any(kind.tokens_shown for kind in shown)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the manifest of a run; raise `RefusedError` if it is invalid, since a stranger may have written it."""
        document = read_object(path, _MOST_BYTES, _ADVICE)
        method = document.get("backend", "nothing")
        if method != METHOD:
            raise RefusedError(f"{path}: backend is {str(method)[:40]}, expected {METHOD}. {_ADVICE}")
        version = document.get("manifest_schema_version", 0)
        if newer := newer_format(version, SCHEMA_VERSION):
            raise RefusedError(f"{path}: {newer}.")
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            errors = list_errors(error)[:_SHOWN]
            more = f"; and {error.error_count() - _SHOWN} more" if error.error_count() > _SHOWN else ""
            raise RefusedError(f"{path}: {'; '.join(errors)}{more}. {_ADVICE}") from error


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter, read, checked and hashed once; `path` is the folder of its run or artifact."""

    path: Path
    digest: str
    manifest: TrainingManifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read and hash the adapter of a run; raise `RefusedError` if it is incomplete or holds a link."""
        refuse_links(path)
        manifest = TrainingManifest.read(path / MANIFEST)
        return cls(path, adapter_digest(path), manifest)

    def file(self, name: ArtifactFile) -> Path:
        """Return the path of a file in its folder."""
        return self.path / name

    @property
    def folder(self) -> Path:
        """The folder that PEFT reads: weights, configuration and tokenizer."""
        return self.file(ADAPTER)

    @property
    def weights(self) -> Path:
        """The file of its matrices."""
        return self.folder / WEIGHTS


def adapter_digest(run: Path) -> str:
    """Return the SHA-256 of weights, configuration and tokenizer; raise `RefusedError` for links or missing weights."""
    folder = run / ADAPTER
    refuse_links(folder)
    if not (folder / WEIGHTS).is_file():
        raise RefusedError(f"{folder / WEIGHTS}: not found. {_ADVICE}")
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return key_of({name: _digest_of_part(path) for name, path in files.items() if name != CARD})


def _digest_of_part(path: Path) -> str:
    """Compute the SHA-256 of a file; sort the lists in PEFT's configuration, whose order varies."""
    if path.name != CONFIGURATION:
        return digest_of(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return key_of({name: sorted(value) if isinstance(value, list) else value for name, value in values.items()})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return digest_of(path)


def refuse_links(folder: Path) -> None:
    """Raise `RefusedError` if a folder contains a link, a pipe or a device, which lead elsewhere."""
    for place, folders, names in os.walk(folder):
        for name in sorted((*folders, *names)):
            path = Path(place, name)
            if is_out_of_place(path):
                raise RefusedError(f"{path}: a link, a pipe or a device. Replace it with the file itself.")


_NAME_RUN: Final = "Name the run that it was trained in."
_LORA: Final = "LORA"
_LONGEST_CONFIGURATION: Final = 1_000_000
_FIRST_HALF: Final = ".lora_A.weight"
_PlainName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,200}$")]


class AdapterConfig(BaseModel):
    """PEFT configuration of an adapter of this project; all other options must be absent or off."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    peft_type: Literal["LORA"]
    r: int = Field(ge=1, le=4_096, description="The rank.")
    lora_alpha: float = Field(default=1, gt=0, le=1_000_000, description="The adapter's scale times its rank.")
    lora_dropout: float = Field(default=0, ge=0, lt=1)
    target_modules: Literal["all-linear"] | list[_PlainName] = Field(
        default="all-linear", description="Names of layers; PEFT treats any other string as a regular expression."
    )
    task_type: Literal["CAUSAL_LM"] | None = None
    bias: Literal["none"] = "none"
    init_lora_weights: bool = Field(default=True, description="Methods with a name are refused.")
    inference_mode: bool = True
    base_model_name_or_path: str | None = None
    revision: str | None = None
    peft_version: str | None = None
    megatron_core: Literal["megatron.core"] = "megatron.core"
    qalora_group_size: int = Field(default=16, description="Has no effect, since `use_qalora` is off.")

    @model_validator(mode="before")
    @classmethod
    def _without_what_is_off(cls, values: Any) -> Any:
        """Ignore options that are null, false or empty; versions of PEFT write different ones."""
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if name in cls.model_fields or not _is_off(value)}


def read_adapter_config(adapter: Path) -> AdapterConfig:
    """Read the configuration of an adapter; raise `RefusedError` for other options or weights of another rank."""
    path = adapter / CONFIGURATION
    values = read_object(path, _LONGEST_CONFIGURATION, _NAME_RUN)
    kind = values.get("peft_type")
    if isinstance(kind, str) and kind != _LORA:
        advice = "Only LoRA adapters are merged, evaluated and served."
        raise RefusedError(f"{path}: peft_type is {kind[:100]}, expected {_LORA}. {advice}")
    try:
        config = AdapterConfig.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise RefusedError(f"{path}: not written by `mens train` ({errors_in(error)[:300]}). {_NAME_RUN}") from error
    ranks = {shape[0] for name, shape in shapes_in(adapter / WEIGHTS).items() if name.endswith(_FIRST_HALF) and shape}
    if ranks - {config.r}:
        found = ", ".join(map(str, sorted(ranks)))
        raise RefusedError(f"{path}: r is {config.r}, {WEIGHTS} holds matrices of rank {found}. {_NAME_RUN}")
    return config


def _is_off(value: Any) -> bool:
    return value is None or value is False or value in ({}, [])
