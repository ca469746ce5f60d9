"""Settings of the corpus stages: `config/pipeline.yaml`."""

from fnmatch import fnmatchcase
from math import isclose
from pathlib import Path
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from mens_pipeline.corpus.extract.forgotten import FORGOTTEN, SourcePolicy, load_forgotten
from mens_pipeline.corpus.extract.licences import LicencePolicy
from mens_pipeline.corpus.telemetry.redaction import RedactionPolicy
from mens_pipeline.storage.validation import Strict
from mens_pipeline.storage.yaml_file import load_model


class ValidatePolicy(Strict):
    """Threshold for near duplicates, and limits on the rows of one source file or template."""

    near_duplicate_threshold: float = Field(gt=0, le=1, description="Jaccard similarity of five-word shingles.")
    max_per_source: int = Field(ge=1, description="Most rows of one source file.")
    max_per_template: int = Field(ge=1, description="Most rows of one template of synthetic data.")


class KindShares(Strict):
    """Shares of the kinds of synthetic rows; all are required."""

    task: float = Field(ge=0, le=1, description="Functions with a behaviour, examples and hidden tests.")
    template: float = Field(ge=0, le=1, description="Programs that show constructs, the scarcest first.")
    combination: float = Field(ge=0, le=1, description="Programs that show several constructs.")

    @model_validator(mode="after")
    def _is_whole(self) -> "KindShares":
        total = sum(self.model_dump().values())
        if not isclose(total, 1):
            raise ValueError(f"the shares add up to {total:g}, not to 1")
        return self


class SynthesizePolicy(Strict):
    """Number of synthetic rows, and the shares of their kinds."""

    limit: int = Field(ge=0, description="Number of rows.")
    seed: int = Field(ge=0, description="The same seed gives the same rows.")
    shares: KindShares = Field(description="Share of each kind of row; they add up to 1.")


class SplitPolicy(Strict):
    """Size of the held-out set, and the similarity above which a row is kept out of training."""

    heldout_share: float = Field(ge=0, lt=1, description="Smallest share of the source files.")
    min_heldout_tasks: int = Field(default=0, ge=0, description="Fewest programs to request.")
    min_heldout_files: int = Field(default=0, ge=0, description="Fewest source files with these programs.")
    max_heldout_share: float = Field(default=1.0, gt=0, le=1, description="Largest share of these files to hold out.")
    seed: int = Field(ge=0, description="Another seed holds out other files.")
    max_overlap: float = Field(gt=0, le=1, description="Share of a held-out task's eight-word runs that may recur.")
    min_nodes: int = Field(ge=1, description="Fewest syntax nodes; smaller pieces are alike by chance.")
    num_family_tasks: int = Field(default=0, ge=0, description="Additional synthetic tasks per group.")


class TelemetryPolicy(Strict):
    """Table, columns and limit of the telemetry rows to read."""

    table: str = Field(default="AgentTelemetry", min_length=1, description="Table or view, perhaps SCHEMA.NAME.")
    query_column: str = Field(default="query", min_length=1, description="The request.")
    response_column: str = Field(default="optimal_response", min_length=1, description="The best answer.")
    rating_column: str | None = Field(default=None, min_length=1, description="1 to 5; unrated rows count as 4.")
    suffix_column: str | None = Field(
        default="suffix",
        min_length=1,
        description="Text after the cursor in rows of accepted pieces; optional in the table.",
    )
    order_column: str | None = Field(
        default=None, min_length=1, description="Decides which rows are newest; by default the key, or else the text."
    )
    limit: int = Field(default=5000, ge=1, le=1_000_000, description="Most rows to read, the newest first.")


class WatchPolicy(Strict):
    """Path patterns of the files whose change starts a run."""

    paths: tuple[str, ...] = Field(
        min_length=1, description="Patterns of paths below the workspace; `*` matches any characters, even `/`."
    )

    def counts(self, path: str) -> bool:
        """Return whether a change of a file starts a run; `path` is relative to the workspace, with `/`."""
        return any(fnmatchcase(path, pattern) for pattern in self.paths)


class NightlyPolicy(Strict):
    """Start of the nightly run, and time of the alert if no run since then has promoted an adapter.

    `orchestration` checks the cron expressions with Dagster's parser.
    """

    schedule: str = Field(default="0 4 * * *", description="Start of the nightly run: a cron expression.")
    alert: str = Field(default="0 8 * * *", description="Time of the alert `adapter_stale`: a cron expression.")
    timezone: str = Field(default="UTC", description="Time zone of both, such as `Europe/Berlin`.")

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, timezone: str) -> str:
        try:
            ZoneInfo(timezone)
        except (OSError, ValueError, LookupError) as error:
            raise ValueError(f"{timezone!r} is not a time zone. Write one such as UTC or Europe/Berlin") from error
        return timezone


class PipelineConfig(Strict):
    """Settings of all corpus stages."""

    validate_: ValidatePolicy = Field(alias="validate", description="Rows that `validate` keeps.")
    synthesize: SynthesizePolicy = Field(description="Rows that `generate-data` writes in the pipeline.")
    telemetry: TelemetryPolicy = Field(description="Rows to read when `MENS_TELEMETRY_URL` names a database.")
    split: SplitPolicy = Field(description="Held-out rows, for evaluating the model.")
    watch: WatchPolicy = Field(description="Files whose change starts a run.")
    nightly: NightlyPolicy = Field(default_factory=NightlyPolicy, description="Times of the nightly run and its alert.")
    redaction: RedactionPolicy = Field(
        default=RedactionPolicy.MASK, description="Treatment of rows that contain a secret or name a person."
    )
    include: tuple[str, ...] = Field(
        default=(),
        description="Patterns of paths below the workspace whose ignored, vendored or generated files are trained on; "
        "`*` matches any characters, even `/`, and a folder includes everything below it.",
    )
    licences: LicencePolicy = Field(default_factory=LicencePolicy, description="Licences to keep out of training.")


def load_pipeline_config(path: Path) -> PipelineConfig:
    """Read and check the configuration; raise a `ConfigurationError` that lists all mistakes."""
    return load_model(path, PipelineConfig)


def load_source_policy(path: Path) -> SourcePolicy:
    """Read the files to keep out of training: `licences` of the configuration, and `forgotten.yaml` next to it."""
    return SourcePolicy.of(load_forgotten(path.with_name(FORGOTTEN)), load_pipeline_config(path).licences.deny)
