"""A file as it was read."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

from mens_pipeline.corpus.schema.records import Source, SourceKind
from mens_pipeline.language import Mode, SourceText, mode_of


@dataclass(frozen=True)
class SourceFile:
    """A file of a workspace.

    `path` is relative to the workspace, with forward slashes; `is_golden` says whether it may judge.
    """

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
