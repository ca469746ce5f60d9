"""Sources of the train set and their shares: `config/mix.yaml`, with upstream's keys."""

from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from mens_pipeline.corpus.schema.records import Lane
from mens_pipeline.storage.yaml_file import load_model

BESIDE: Final = ("heldout.jsonl", "families.jsonl", "aside.jsonl")
"""What the command writes beside the train set; no source and no train set may be called so."""


class RecordFormat(StrEnum):
    """Rows of other tools that are turned into pairs."""

    TOOL_TRACE = "tool_trace"
    ASR_REFINE = "asr_refine"
    SPEECH_TO_CODE = "speech_to_code"
    WORKFLOW_TRACE = "workflow_trace"


def _below(path: str) -> str:
    pure = PurePosixPath(path)
    if "\0" in path or "\\" in path or pure.is_absolute() or ".." in pure.parts:
        raise ValueError("expected a path below the data folder, with forward slashes and without `..`")
    return path


FilePath = Annotated[str, AfterValidator(_below)]
"""A file of a mix; one that a stranger wrote reads and writes nothing outside the data folder."""


class MixSource(BaseModel):
    """One file of rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: FilePath = Field(min_length=1, description="JSON lines, relative to the data folder.")
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False, description="Its share, beside other weights; 0 out.")
    optional: bool = Field(default=False, description="Whether it may be missing or empty.")
    sample_rate: float = Field(default=1.0, gt=0, le=1, description="Share of its rows that is used at all; seeded.")
    record_format: RecordFormat | None = Field(default=None, description="What its rows are, if they are no pairs.")


class MixConfig(BaseModel):
    """The whole mix."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: tuple[MixSource, ...] = Field(min_length=1, description="In the order of the report.")
    output: FilePath = Field(
        default="train.jsonl", pattern=r"\.jsonl$", description="The train set, relative to the data folder."
    )
    include_lanes: tuple[Lane, ...] = Field(default=(), description="Lanes that train; none means vox_codegen alone.")
    exclude_lanes: tuple[Lane, ...] = Field(default=(), description="Lanes that do not, whatever is included.")
    max_repeats: float = Field(default=2.0, ge=1, le=100, description="How often a row may be used.")
    seed: int = Field(default=0, ge=0, description="Decides samples, repeats and order.")

    @model_validator(mode="after")
    def _paths_differ(self) -> "MixConfig":
        paths = [*(source.path for source in self.sources), self.output, *BESIDE]
        twice = sorted({path for path in paths if paths.count(path) > 1})
        if twice:
            raise ValueError(f"named more than once: {', '.join(twice)}")
        return self

    @property
    def lanes(self) -> frozenset[Lane]:
        """The lanes that train."""
        return frozenset(self.include_lanes or (Lane.CODEGEN,)) - frozenset(self.exclude_lanes)


def load_mix_config(path: Path) -> MixConfig:
    """Read and check a mix.

    Raises:
        ConfigurationError: It is missing, is no YAML, or holds mistakes; the message names all of them.
    """
    return load_model(path, MixConfig)
