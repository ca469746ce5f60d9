"""The row that trains: a request and its answer."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from mens_pipeline.corpus.schema.categories import category_named
from mens_pipeline.corpus.schema.records import MAX_TEXT, Lane, Source, SourceKind

SCHEMA_VERSION: Final = "vox_dogfood_v1"


class Lineage(BaseModel):
    """Parent and operator of a row that a model wrote."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    parent: str = Field(description="SHA-256 of the row it was evolved from, hexadecimal.")
    operator: str = Field(description="How the request was changed: `add_constraints`.")
    generation: int = Field(ge=1, description="1 for a row whose parent nobody evolved.")
    generator: str = Field(description="The model that wrote it.")
    generator_digest: str = Field(description="SHA-256 of its weights; of an endpoint, its address.")
    seed: int = Field(ge=0, description="Of the run that evolved it.")
    root_kind: SourceKind | None = Field(description="What the first of its ancestors was made from, if that is known.")


class TrainingPair(BaseModel):
    """A prompt and its response; canonical names on write, aliases accepted on read, unknown keys passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    prompt: str = Field(
        min_length=1,
        max_length=MAX_TEXT,
        validation_alias=AliasChoices("prompt", "instruction"),
        description="Request.",
    )
    response: str = Field(
        min_length=1, max_length=MAX_TEXT, validation_alias=AliasChoices("response", "output"), description="Answer."
    )
    category: Annotated[str, AfterValidator(category_named)] = Field(
        default="general", min_length=1, description="Its construct, `documentation`, or a task; see `categories`."
    )
    rating: int = Field(default=3, ge=1, le=5, strict=True, description="5 is ground truth.")
    schema_version: Literal["vox_dogfood_v1"] = SCHEMA_VERSION
    lane: Lane = Lane.CODEGEN
    response_mode: Literal["code_only", "prose_only"] = "code_only"
    task_family: str = Field(default="vox_codegen", min_length=1)
    difficulty: int = Field(default=5, ge=1, le=10, strict=True)
    template: str | None = Field(default=None, description="What made it, for a synthetic row: `mutation/rename`.")
    source: Source | None = Field(default=None, description="Where the response stands; None for rows from elsewhere.")
    # Left out where there is none, so that rows without them are the same bytes whether or not other rows have them.
    tests: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_TEXT,
        exclude_if=lambda tests: tests is None,
        description="Hidden tests that the response passes: `@test` functions, below what the task gives.",
    )
    lineage: Lineage | None = Field(
        default=None, exclude_if=lambda lineage: lineage is None, description="Of a row that a model wrote."
    )
