"""A file as it was read, and a piece of its code as a record."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import JsonValue

from mens_pipeline.corpus.schema.records import ExtractedRecord, Lane, Source, SourceKind
from mens_pipeline.language import Construct, Mode, SourceText, construct_of, mode_of
from mens_pipeline.language.ast import Declaration


@dataclass(frozen=True)
class SourceFile:
    """A file of a workspace, its path relative to that, with forward slashes; `is_golden`: whether it may judge."""

    path: str
    data: bytes
    commit: str | None = None
    is_golden: bool = True

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
