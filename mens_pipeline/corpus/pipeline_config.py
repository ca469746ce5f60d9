"""How the corpus is made: `config/pipeline.yaml`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.corpus.yaml_file import load_model


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ValidatePolicy(_Strict):
    """Which rows repeat others, and how many one origin may give."""

    near_duplicate_threshold: float = Field(gt=0, le=1, description="Jaccard similarity of five-word shingles.")
    max_per_source: int = Field(ge=1, description="Rows of one source file.")
    max_per_template: int = Field(ge=1, description="Rows of one template of synthetic data.")


class SynthesizePolicy(_Strict):
    """How much synthetic data there is."""

    limit: int = Field(ge=0, description="Rows.")
    seed: int = Field(ge=0, description="The same seed gives the same rows.")


class SplitPolicy(_Strict):
    """What is held out, and what is too near to it."""

    heldout_share: float = Field(ge=0, lt=1, description="Share of the source files.")
    seed: int = Field(ge=0, description="Another seed holds out other files.")
    max_overlap: float = Field(gt=0, le=1, description="Share of the eight-word runs of a held-out answer.")
    min_nodes: int = Field(ge=1, description="Syntax nodes below which pieces are alike by chance.")


class TelemetryPolicy(_Strict):
    """Which rows of a telemetry table become pairs."""

    table: str = Field(default="AgentTelemetry", min_length=1, description="Table or view, perhaps SCHEMA.NAME.")
    query_column: str = Field(default="query", min_length=1, description="What was asked.")
    response_column: str = Field(default="optimal_response", min_length=1, description="The best answer.")
    rating_column: str | None = Field(default=None, min_length=1, description="1 to 5; unrated rows count as 4.")
    order_column: str | None = Field(
        default=None, min_length=1, description="What decides which rows are newest; else the key, else the text."
    )
    limit: int = Field(default=5000, ge=1, le=1_000_000, description="Rows to read at most, the newest first.")


class PipelineConfig(_Strict):
    """How the corpus is made."""

    validate_: ValidatePolicy = Field(alias="validate", description="What `validate` keeps.")
    synthesize: SynthesizePolicy = Field(description="What `generate-data` writes in the pipeline.")
    telemetry: TelemetryPolicy = Field(description="What is read when `MENS_TELEMETRY_URL` names a database.")
    split: SplitPolicy = Field(description="What judges the model.")


def load_pipeline_config(path: Path) -> PipelineConfig:
    """Read and check the configuration.

    Args:
        path: A YAML file.

    Raises:
        ConfigurationError: It is missing, is no YAML, or holds mistakes; the message names all of them.
    """
    return load_model(path, PipelineConfig)
