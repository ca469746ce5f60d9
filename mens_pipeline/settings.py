"""What this machine's environment says; the only module that reads it."""

import os
from pathlib import Path
from typing import Final

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from mens_pipeline.corpus.mistakes import mistakes_in
from mens_pipeline.errors import ConfigurationError

PROJECT_ROOT: Final = Path(__file__).resolve().parents[1]
PIPELINE_CONFIG: Final = PROJECT_ROOT / "config" / "pipeline.yaml"
MIX_CONFIG: Final = PROJECT_ROOT / "config" / "mix.yaml"
GATE_POLICY: Final = PROJECT_ROOT / "config" / "gates.yaml"


def _num_processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Settings(BaseSettings):
    """The environment variables that the pipeline obeys."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    source_root: Path = Field(
        default=PROJECT_ROOT / "data",
        validation_alias="MENS_SOURCE_ROOT",
        description="The Vox workspace to learn from: any folder with .vox files below it.",
    )
    strict_jsonl: bool = Field(
        default=False,
        validation_alias="VOX_MENS_TRAIN_JSONL_STRICT",
        description="Stop at the first row that is not kept, and write nothing.",
    )
    store_root: Path = Field(
        default=PROJECT_ROOT / "data" / "store",
        validation_alias="MENS_STORE_ROOT",
        description="Where the pipeline keeps what it makes.",
    )
    num_workers: int = Field(
        default_factory=_num_processors,
        ge=1,
        validation_alias="MENS_NUM_WORKERS",
        description="Processes that work on a corpus at once; what they make does not depend on it.",
    )
    telemetry_url: SecretStr | None = Field(
        default=None,
        validation_alias="MENS_TELEMETRY_URL",
        description="The database with the telemetry of agents, as an SQLAlchemy URL.",
    )
    dagster_home: Path = Field(
        default=PROJECT_ROOT / "data" / "dagster",
        validation_alias="DAGSTER_HOME",
        description="Where Dagster keeps its runs and events.",
    )


def load_settings() -> Settings:
    """The settings of this process.

    Raises:
        ConfigurationError: A variable has a value that does not fit; the message names all of them.
    """
    try:
        return Settings()
    except ValidationError as error:
        raise ConfigurationError(f"environment: {mistakes_in(error)}. Correct or unset these variables.") from error
