"""The rows of the corpus: records from extraction, and pairs for training.

A record is a piece of a file with its source and the front end's verdict. A pair is a prompt and its response. Both are
read from files of JSON lines.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, field_validator, model_validator

from mens_pipeline.corpus.schema.file_text import decode_text
from mens_pipeline.corpus.schema.upstream_rows import is_upstream_record, pair_fields
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import CONSTRUCTS, Construct, Mode, SourceText, analyze, construct_of, mode_of
from mens_pipeline.language.ast import Declaration
from mens_pipeline.storage.jsonl import MAX_OWN_LINE_BYTES, model_in, models_in, open_rows
from mens_pipeline.storage.kinds import CorpusFile, SplitFile
from mens_pipeline.storage.validation import Strict

FILES: Final = CorpusFile.FILES
"""An output of the extraction: an account of each file, with its licence."""

UNKNOWN_LICENCE: Final = "unknown"
"""No licence with an SPDX id was found."""

HELDOUT: Final = SplitFile.HELDOUT
NEW_CONSTANTS: Final = "new_constants"
"""The `task_family` of held-out tasks from trained families, with new constants."""

UNKNOWN_TASK: Final = "unknown_task"
"""The `task_family` of held-out tasks from families that are never trained on."""

MAX_TEXT: Final = 65_536
"""Most characters of a prompt or a completion; longer ones would never fit a context."""

MAX_FILE_RECORDS: Final = 8_388_608
"""Most characters of a file's records, metadata included; every record repeats the header and its dependencies."""

MAX_CONTEXT: Final = 400
"""Most characters of a record's context, before secrets are masked."""

_MAX_LABEL: Final = MAX_TEXT // 4
"""Most characters of a text that a prompt quotes together with others."""


class SourceKind(StrEnum):
    """Origin of a row."""

    VOX_FILE = "vox_file"
    VOX_DECLARATION = "vox_declaration"
    DOC_BLOCK = "doc_block"
    DOC_SECTION = "doc_section"
    TELEMETRY = "telemetry"
    SYNTHETIC = "synthetic"  # made from a template, not from a file
    EVOLVED = "evolved"
    """Written by a model from a request that it rewrote; its `lineage` names the parent."""


class Lane(StrEnum):
    """Training lane of a row; the names are upstream's."""

    CODEGEN = "vox_codegen"
    DOCS_QA = "vox_docs_qa"
    TOOLING = "vox_tooling"
    SPEECH = "vox_speech"
    TRAJECTORY_REPAIR = "vox_trajectory_repair"
    RETRIEVAL_GROUNDED = "vox_retrieval_grounded"
    LANG_TIER_B = "vox_lang_tier_b"
    LOGIC_COMPOSITION = "vox_logic_composition"
    RUST_EXPERT_CROSS = "vox_rust_expert_cross"
    RUST_CONTEXT = "rust_context"
    RESEARCH_EXPERT = "vox_research_expert"
    DOGFOOD_AGENT = "vox_dogfood_agent"
    DOGFOOD_FLYWHEEL = "vox_dogfood_flywheel"


class Source(Strict):
    """File, lines and commit of a record."""

    path: str = Field(max_length=_MAX_LABEL, description="File, relative to the workspace, with forward slashes.")
    blob: str = Field(description="SHA-256 of the whole file, hexadecimal.")
    span: tuple[int, int] = Field(description="Half-open range of characters in the file.")
    lines: tuple[int, int] = Field(description="First and last line, from 1.")
    commit: str | None = Field(default=None, description="Git commit of the workspace, if there is one.")
    kind: SourceKind
    golden: bool = Field(
        default=True,
        exclude_if=lambda golden: golden,
        description="False for a program outside the golden roots of its workspace, which is never held out.",
    )

    @classmethod
    def of_text(cls, path: str, text: str, kind: SourceKind) -> "Source":
        """Return the source of a text that is, or stands for, a whole file."""
        lines = (1, text.count("\n") + (not text.endswith("\n")))
        blob = hashlib.sha256(text.encode()).hexdigest()
        return cls(path=path, blob=blob, span=(0, len(text)), lines=lines, kind=kind)


class ExtractedRecord(Strict):
    """A piece of a workspace for training; its text has no metadata comments."""

    source: Source
    lane: Lane
    text: str = Field(min_length=1, max_length=MAX_TEXT, description="Vox code, or Markdown prose in the docs lane.")
    text_sha256: str = Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the text, hexadecimal.")
    verdict: Literal["accepted", "prose"] = Field(description="Verdict of the front end; prose has none.")
    prompt: str | None = Field(max_length=MAX_TEXT, description="Request stated in the source for this text, if any.")
    context: str | None = Field(max_length=_MAX_LABEL, description="Title, heading or doc comment.")
    name: str | None = Field(description="The declared name, for a declaration.")
    category: str = Field(min_length=1, description="Its construct, the hardest of several; `documentation` for prose.")
    constructs: dict[str, int] = Field(description="Construct -> number of declarations in the text.")
    difficulty: int = Field(ge=1, le=10, description="Difficulty of the hardest construct; 5 for prose.")
    weight: float = Field(gt=0, description="`training_weight` of the source.")
    metadata: dict[str, JsonValue] = Field(description="The frontmatter of the source.")

    @model_validator(mode="before")
    @classmethod
    def _from_upstream(cls, content: Any) -> Any:
        """Convert a record of upstream's `validated.jsonl`, which has a whole file as `code`."""
        if not is_upstream_record(content):
            return content
        source = Source.of_text(_normalize_path(content.get("source")), content["code"], SourceKind.VOX_FILE)
        analysis = analyze(content["code"], mode_of(source.path))
        if analysis.module is None or not analysis.module.declarations:
            problem = analysis.errors[0].message if analysis.errors else "nothing is declared"
            raise ValueError(f"code: the front end does not accept it ({problem})")
        return dict(code_record(content["code"], analysis.module.declarations, source, weight=1.0, metadata={}))

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if (self.verdict == "prose") != (self.lane is Lane.DOCS_QA):
            raise ValueError(f"verdict: {self.verdict!r} in the lane {self.lane}; prose belongs into {Lane.DOCS_QA}")
        return self


@dataclass(frozen=True)
class SourceFile:
    """A file of a workspace; `path` is relative, with forward slashes.

    `commit` and `remote` belong to its checkout. `is_golden` says whether it may be held out. `licence` is an SPDX
    expression, or `unknown`. Spans count the characters of `text`, whose lines end in line feeds.
    """

    path: str
    data: bytes
    commit: str | None = None
    is_golden: bool = True
    licence: str = "unknown"
    remote: str | None = None

    @cached_property
    def blob(self) -> str:
        """SHA-256 of the content, hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def text(self) -> str:
        """The decoded content; raises `UnicodeDecodeError` if it is not text."""
        return decode_text(self.data)

    @property
    def mode(self) -> Mode:
        """The grammar mode that the name selects."""
        return mode_of(self.path.rsplit("/", 1)[-1])

    def source(self, kind: SourceKind, text: SourceText, span: tuple[int, int]) -> Source:
        """Return the source of a range of characters of this file."""
        lines = text.position(span[0]).line, text.position(max(span[0], span[1] - 1)).line
        place = {"path": self.path, "blob": self.blob, "span": span, "lines": lines, "commit": self.commit}
        return Source(**place, kind=kind, golden=self.is_golden)


def code_record(  # noqa: PLR0913 - a record has this many parts
    text: str,
    declarations: Sequence[Declaration],
    source: Source,
    *,
    weight: float,
    metadata: dict[str, JsonValue],
    prompt: str | None = None,
    context: str | None = None,
    name: str | None = None,
    category: str | None = None,
) -> ExtractedRecord:
    """Build a record of code with at least one declaration; its category defaults to the hardest construct."""
    hardest = hardest_construct(declarations)
    counts = Counter(construct_of(declaration).name for declaration in declarations)
    return ExtractedRecord(
        source=source,
        lane=Lane.CODEGEN,
        text=text,
        text_sha256=hashlib.sha256(text.encode()).hexdigest(),
        verdict="accepted",
        prompt=prompt,
        context=context,
        name=name,
        category=category or hardest.name,
        constructs=dict(sorted(counts.items())),
        difficulty=hardest.difficulty,
        weight=weight,
        metadata=metadata,
    )


def hardest_construct(declarations: Sequence[Declaration]) -> Construct:
    """Return the construct of the hardest declaration, the first of equals."""
    return max((construct_of(declaration) for declaration in declarations), key=lambda c: c.difficulty)


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
"""Known categories; rows with another category get a warning."""

SCHEMA_VERSION: Final = "vox_dogfood_v1"


def _normalize_path(path: object) -> str:
    return str(path or "unknown").replace("\\", "/")


def pair_digest(prompt: str, response: str) -> bytes:
    """Hash (SHA-256) prompt and response; equal pairs have equal digests."""
    return hashlib.sha256(f"{prompt}\0{response}".encode()).digest()


class Lineage(BaseModel):
    """Parent and operator of a row that a model wrote."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    parent: str = Field(description="SHA-256 of the row it was evolved from, hexadecimal.")
    operator: str = Field(description="Change to the request, such as `add_constraints`.")
    generation: int = Field(ge=1, description="1 for a row whose parent was not evolved.")
    generator: str = Field(description="The model that wrote it.")
    generator_digest: str = Field(description="SHA-256 of its weights, or the address of an endpoint.")
    seed: int = Field(ge=0, description="Seed of the run that evolved it.")
    root_kind: SourceKind | None = Field(description="Kind of its first ancestor, if known.")


class HoleKind(StrEnum):
    """Kind of piece cut out of a program."""

    LINE = "line"  # the rest of a line from a token on
    EXPRESSION = "expression"
    ARGUMENTS = "arguments"  # all arguments of a call
    STATEMENT = "statement"
    STATEMENTS = "statements"  # two to four in a row
    BODY = "body"  # all statements of a block
    FIELD = "field"  # or a variant, a state, a transition, a member
    DECORATOR = "decorator"


class InfillContext(BaseModel):
    """Marks an infill row: its prompt is the text before a hole in a program, its response the piece cut out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: HoleKind = Field(description="The piece of the program that was cut out.")
    suffix: str = Field(max_length=MAX_TEXT, description="Text after the hole; empty at the end of a file.")


class TrainingPair(BaseModel):
    """A prompt and its response; written with canonical names, read with aliases, ignoring unknown keys."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    prompt: str = Field(min_length=1, max_length=MAX_TEXT)
    """Request."""
    response: str = Field(min_length=1, max_length=MAX_TEXT)
    """Completion."""
    category: str = Field(default="general", min_length=1)
    """Construct, `documentation`, or a task; any text in rows from elsewhere."""
    rating: int = Field(default=3, ge=1, le=5, strict=True)
    """5 is ground truth."""
    schema_version: Literal["vox_dogfood_v1"] = SCHEMA_VERSION
    """Format of the row."""
    lane: Lane = Lane.CODEGEN
    response_mode: Literal["code_only", "prose_only"] = "code_only"
    """Kind of response."""
    task_family: str = Field(default="vox_codegen", min_length=1)
    """Kind of row; recipes set token shares by it."""
    difficulty: int = Field(default=5, ge=1, le=10, strict=True)
    """Difficulty from 1 to 10; in our rows, of the hardest construct."""
    template: str | None = None
    """Template of a synthetic row, such as `table/catalogue`."""
    source: Source | None = None
    """Origin of the response; None for rows from elsewhere."""
    # Absent fields are left out, so that rows without them have the same bytes whether or not other rows have them.
    tests: str | None = Field(default=None, min_length=1, max_length=MAX_TEXT, exclude_if=lambda tests: tests is None)
    """Hidden tests that the response passes: `@test` functions, after the code that the task gives."""
    infill: InfillContext | None = Field(default=None, exclude_if=lambda infill: infill is None)
    """Set for an infill row."""
    lineage: Lineage | None = Field(default=None, exclude_if=lambda lineage: lineage is None)
    """Set for a row that a model wrote."""

    @model_validator(mode="before")
    @classmethod
    def _from_upstream(cls, content: Any) -> Any:
        return pair_fields(content) if isinstance(content, Mapping) else content

    @field_validator("source", mode="before")
    @classmethod
    def _from_path(cls, source: Any, info: ValidationInfo) -> Any:
        if not isinstance(source, str):
            return source
        if not source.endswith((".vox", ".vox.ui", ".md")):
            return None
        kind = SourceKind.DOC_BLOCK if source.endswith(".md") else SourceKind.VOX_FILE
        return Source.of_text(_normalize_path(source), info.data.get("response", ""), kind)

    @property
    def digest(self) -> bytes:
        """SHA-256 of prompt and response."""
        return pair_digest(self.prompt, self.response)


def parsed_code(row: ExtractedRecord | TrainingPair) -> tuple[str, Mode] | None:
    """Return a row's code and the mode to parse it in; None for prose, and for a piece of a program."""
    if isinstance(row, ExtractedRecord):
        code, is_code = row.text, row.verdict == "accepted"
    else:
        code, is_code = row.response, row.response_mode == "code_only" and row.infill is None
    if not is_code:
        return None
    return code, mode_of(row.source.path) if row.source is not None else Mode.SOURCE


def read_records(lines: Iterable[bytes], path: Path) -> Iterator[ExtractedRecord]:
    """Parse extracted records, one per line; skip blank lines, and raise `RefusedError` for an invalid line."""
    return models_in(lines, path, ExtractedRecord, "extracted record", "Run `mens corpus validate` on the file first.")


def read_record_lines(path: Path) -> Iterator[tuple[str, ExtractedRecord]]:
    """Yield each line of `mens corpus extract`, without its end, and its record; raise `RefusedError` for others."""
    with open_rows(path, MAX_OWN_LINE_BYTES) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                advice = "Remove the row, or name another file to write."
                record = model_in(line, f"{path}:{number}", ExtractedRecord, "extracted record", advice)
                if b'"text_sha256"' not in line:  # its paths may start elsewhere, so it would be dropped as gone
                    raise RefusedError(f"{path}:{number}: a record written by another toolchain. {advice}")
                yield line.decode().rstrip("\n"), record


def read_pairs(path: Path) -> Iterator[TrainingPair]:
    """Parse the training pairs of a file, like `parse_pairs`."""
    with open_rows(path) as lines:
        yield from parse_pairs(lines, path)


def parse_pairs(lines: Iterable[bytes], path: Path) -> Iterator[TrainingPair]:
    """Parse training pairs, one per line; skip blank lines, and raise `RefusedError` for an invalid line."""
    return models_in(lines, path, TrainingPair, "pair", "Run `mens corpus validate` on the file first.")
