"""The row that trains, a prompt and its completion; and rows read from files of JSON lines."""

import hashlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from mens_pipeline.corpus.schema.records import MAX_TEXT, ExtractedRecord, Lane, Source, SourceKind
from mens_pipeline.errors import did_you_mean
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline.storage.jsonl import MAX_OWN_LINE_BYTES, model_in, models_in, open_rows

TASKS: Final = (
    "agent_answer",
    "asr_refine",
    "documentation",
    "general",
    "speech_to_code",
    "tool_trace",
    "workflow_trace",
)
"""Categories of rows that do not show one construct."""

CATEGORIES: Final = frozenset((*CONSTRUCTS, *TASKS))
OTHER_NAMES: Final = {
    "const_decl": "const",
    "docs": "documentation",
    "endpoint": "server",
    "enum": "type",
    "fn": "function",
    "func": "function",
    "search_index": "index",
    "server_fn": "server",
    "struct": "type",
    "type_def": "type",
    "vector_index": "index",
}
"""Category in the data of other toolchains -> our name of it."""


def unknown_category(name: str) -> str | None:
    """Describe what is wrong with a category; None for one of the table."""
    if name in CATEGORIES:
        return None
    near = did_you_mean(name, CATEGORIES)
    return f"category {name!r} is none{f'. {near}' if near else ''}"


SCHEMA_VERSION: Final = "vox_dogfood_v1"


def pair_digest(prompt: str, response: str) -> bytes:
    """Hash (SHA-256) what makes two pairs the same."""
    return hashlib.sha256(f"{prompt}\0{response}".encode()).digest()


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


class HoleKind(StrEnum):
    """Piece of a program that was cut out, for a row that asks for it."""

    LINE = "line"
    """The rest of a line from a token on."""
    EXPRESSION = "expression"
    ARGUMENTS = "arguments"
    """All arguments of a call."""
    STATEMENT = "statement"
    STATEMENTS = "statements"
    """Two to four in a row."""
    BODY = "body"
    """All statements of a block."""
    FIELD = "field"
    """Or a variant, a state, a transition, a member."""
    DECORATOR = "decorator"


class InfillContext(BaseModel):
    """What makes a pair an infill row: its prompt stands before a hole in a program, its response is what was there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: HoleKind = Field(description="The piece of the program that was cut out.")
    suffix: str = Field(max_length=MAX_TEXT, description="What stands behind the hole; empty at the end of a file.")


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
        min_length=1,
        max_length=MAX_TEXT,
        validation_alias=AliasChoices("response", "output"),
        description="Completion.",
    )
    category: Annotated[str, AfterValidator(lambda name: OTHER_NAMES.get(name, name))] = Field(
        default="general", min_length=1, description="Its construct, `documentation`, or a task; see `categories`."
    )
    rating: int = Field(default=3, ge=1, le=5, strict=True, description="5 is ground truth.")
    schema_version: Literal["vox_dogfood_v1"] = SCHEMA_VERSION
    lane: Lane = Lane.CODEGEN
    response_mode: Literal["code_only", "prose_only"] = "code_only"
    task_family: str = Field(default="vox_codegen", min_length=1)
    difficulty: int = Field(default=5, ge=1, le=10, strict=True)
    template: str | None = Field(default=None, description="What made it, for a synthetic row: `table/catalogue`.")
    source: Source | None = Field(default=None, description="Where the response stands; None for rows from elsewhere.")
    # Left out where there is none, so that rows without them are the same bytes whether or not other rows have them.
    tests: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_TEXT,
        exclude_if=lambda tests: tests is None,
        description="Hidden tests that the response passes: `@test` functions, below what the task gives.",
    )
    infill: InfillContext | None = Field(
        default=None,
        exclude_if=lambda infill: infill is None,
        description="Of a row that asks for a piece of a program at a cursor.",
    )
    lineage: Lineage | None = Field(
        default=None, exclude_if=lambda lineage: lineage is None, description="Of a row that a model wrote."
    )

    @property
    def digest(self) -> bytes:
        """SHA-256 of what makes it the same as another: prompt and response."""
        return pair_digest(self.prompt, self.response)


def read_records(lines: Iterable[bytes], path: Path) -> Iterator[ExtractedRecord]:
    """Parse extracted records, one a line; blank lines are skipped, and a line that is no record is a RefusedError."""
    return models_in(lines, path, ExtractedRecord, "extracted record", "Run `mens corpus validate` on the file first.")


def read_record_lines(path: Path) -> Iterator[tuple[str, ExtractedRecord]]:
    """Yield each line that `mens corpus extract` wrote, without its end, with its record; as `read_records`."""
    with open_rows(path, MAX_OWN_LINE_BYTES) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                advice = "Take the row out, or name another file to write."
                record = model_in(line, f"{path}:{number}", ExtractedRecord, "extracted record", advice)
                yield line.decode().rstrip("\n"), record


def read_pairs(path: Path) -> Iterator[TrainingPair]:
    """Parse training pairs, one a line; blank lines are skipped, and a line that is no pair is a RefusedError."""
    with open_rows(path) as lines:
        yield from models_in(lines, path, TrainingPair, "pair", "Run `mens corpus validate` on the file first.")
