"""The record that extraction writes: a piece of a workspace, where it came from, and what the front end said."""

import hashlib
from enum import StrEnum
from typing import Final, Literal

from pydantic import Field, JsonValue

from mens_pipeline.storage.validation import Strict

MAX_TEXT: Final = 65_536
"""Characters of a request or an answer; longer ones would never fit a context."""

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
