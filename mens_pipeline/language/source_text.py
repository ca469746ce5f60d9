"""Places in a text, and reading a file as text."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a source text.

    Attributes:
        offset: Bytes before it, in UTF-8.
        line: Line, from 1; LF ends a line.
        column: Characters before it on its line, from 0.
    """

    offset: int
    line: int
    column: int


@dataclass(frozen=True)
class SourceText:
    """A text that answers where its characters are."""

    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        end = self.text.find("\n")
        while end >= 0:
            starts.append(end + 1)
            end = self.text.find("\n", end + 1)
        return starts

    @cached_property
    def _is_ascii(self) -> bool:
        return self.text.isascii()

    def position(self, index: int) -> Position:
        """Return the byte offset, line and column of the character at `index`; a lone surrogate counts three bytes."""
        line = bisect_right(self._line_starts, index)
        column = index - self._line_starts[line - 1]
        offset = index if self._is_ascii else len(self.text[:index].encode("utf-8", "surrogatepass"))
        return Position(offset, line, column)

    def line(self, number: int) -> str:
        """Return the text of a line, counted from 1, without its line end."""
        start = self._line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].removesuffix("\r")
