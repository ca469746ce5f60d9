"""The record that extraction writes, a piece of a file that was read: where it came from, what the front end said."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, Literal

from pydantic import Field, JsonValue

from mens_pipeline.language import Construct, Mode, SourceText, construct_of, mode_of
from mens_pipeline.language.ast import Declaration
from mens_pipeline.storage.validation import Strict

FILES: Final = "files.jsonl"
"""Among the outputs of an extraction: an account of each file, with its licence."""

UNKNOWN_LICENCE: Final = "unknown"
"""No licence was found, or none that has an SPDX id."""

HELDOUT_SPLIT: Final = "heldout_split"
"""The kind of the artifact with the pairs that evaluate."""

HELDOUT: Final = "heldout.jsonl"
NEW_CONSTANTS: Final = "new_constants"
"""The `task_family` of held-out tasks of families that train, with constants that do not."""

UNKNOWN_TASK: Final = "unknown_task"
"""The `task_family` of held-out tasks of families that never train."""

MAX_TEXT: Final = 65_536
"""Characters of a prompt or a completion; longer ones would never fit a context."""

MAX_FILE_RECORDS: Final = 8_388_608
"""Characters of all records of a file, metadata included; every record repeats the header and what it needs."""

MAX_CONTEXT: Final = 400
"""Characters of what a text is about."""


class SourceKind(StrEnum):
    """Origin of a row."""

    VOX_FILE = "vox_file"
    VOX_DECLARATION = "vox_declaration"
    DOC_BLOCK = "doc_block"
    DOC_SECTION = "doc_section"
    TELEMETRY = "telemetry"
    SYNTHETIC = "synthetic"
    """A template; no file stands behind it."""
    EVOLVED = "evolved"
    """A program that a model wrote to a request it had made harder; its `lineage` says from what."""


class Lane(StrEnum):
    """Lane of training that a row is for; the names are upstream's."""

    CODEGEN = "vox_codegen"
    DOCS_QA = "vox_docs_qa"
    TOOLING = "vox_tooling"
    SPEECH = "vox_speech"
    TRAJECTORY_REPAIR = "vox_trajectory_repair"
    RETRIEVAL_GROUNDED = "vox_retrieval_grounded"
    LANG_TIER_B = "vox_lang_tier_b"
    RUST_EXPERT_CROSS = "vox_rust_expert_cross"
    RUST_CONTEXT = "rust_context"
    RESEARCH_EXPERT = "vox_research_expert"
    DOGFOOD_AGENT = "vox_dogfood_agent"


class Source(Strict):
    """File, lines and commit of a record."""

    path: str = Field(description="File, relative to the workspace, with forward slashes.")
    blob: str = Field(description="SHA-256 of the whole file, hexadecimal.")
    span: tuple[int, int] = Field(description="Characters from and up to, in the file; half-open.")
    lines: tuple[int, int] = Field(description="First and last line, from 1.")
    commit: str | None = Field(default=None, description="Git commit of the workspace, where there is one.")
    kind: SourceKind
    golden: bool = Field(
        default=True,
        exclude_if=lambda golden: golden,
        description="False for a program outside the golden roots of its workspace: it trains, and never judges.",
    )

    @classmethod
    def of_text(cls, path: str, text: str, kind: SourceKind) -> "Source":
        """Return the source of a text that is a whole file, or that stands for one."""
        lines = (1, text.count("\n") + (not text.endswith("\n")))
        blob = hashlib.sha256(text.encode()).hexdigest()
        return cls(path=path, blob=blob, span=(0, len(text)), lines=lines, kind=kind)


class ExtractedRecord(Strict):
    """One piece of a workspace that may train a model; metadata comments are not part of its text."""

    source: Source
    lane: Lane
    text: str = Field(min_length=1, max_length=MAX_TEXT, description="Vox code, or Markdown prose in the docs lane.")
    text_sha256: str = Field(description="SHA-256 of the text, hexadecimal.")
    verdict: Literal["accepted", "prose"] = Field(description="What the front end said; prose is not judged.")
    prompt: str | None = Field(description="The request that the source itself states for this text, if it does.")
    context: str | None = Field(description="Title, heading or doc comment: what the text is about.")
    name: str | None = Field(description="The declared name, for a declaration.")
    category: str = Field(description="Its construct; of several, the hardest; `documentation` for prose.")
    constructs: dict[str, int] = Field(description="Construct -> number of declarations in the text.")
    difficulty: int = Field(ge=1, le=10)
    weight: float = Field(gt=0, description="`training_weight` of the source.")
    metadata: dict[str, JsonValue] = Field(description="The frontmatter of the source, as it stands.")


@dataclass(frozen=True)
class SourceFile:
    """A file of a workspace, its path relative to that, with forward slashes.

    `is_golden`: whether it may evaluate. `licence`: an SPDX expression, or `unknown`.
    """

    path: str
    data: bytes
    commit: str | None = None
    is_golden: bool = True
    licence: str = "unknown"

    @cached_property
    def blob(self) -> str:
        """SHA-256 of the content, hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def mode(self) -> Mode:
        """The mode that the name selects."""
        return mode_of(self.path.rsplit("/", 1)[-1])

    def source(self, kind: SourceKind, text: SourceText, span: tuple[int, int]) -> Source:
        """Return the place of a piece of this file."""
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
    """Build a record of code with at least one declaration; its category is that of the hardest where none is given."""
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
    """Return the construct of the hardest declaration, which gives a text its difficulty; of equals the first."""
    return max((construct_of(declaration) for declaration in declarations), key=lambda c: c.difficulty)
