"""A program as the page shows it: not endless, and with the place of its first error marked."""

import re
from dataclasses import dataclass
from typing import Final

from mens_pipeline.language import SourceText

LONGEST: Final = 3_000
"""Characters that are shown; a page of two hundred tasks stays below two megabytes."""

_PLACE: Final = re.compile(r"(\d+):(\d+): ")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A text in five pieces; all but the first are empty where nothing is marked.

    Attributes:
        before: Up to the marked line.
        line_before: The marked line up to the marked character.
        marked: The marked character; empty at the end of a line.
        line_after: The rest of the line.
        after: The lines behind it.
        has_mark: Whether a line is marked.
        num_left_out: Characters that are not shown.
    """

    before: str
    line_before: str = ""
    marked: str = ""
    line_after: str = ""
    after: str = ""
    has_mark: bool = False
    num_left_out: int = 0


def excerpt(text: str, error: str | None = None) -> Excerpt:
    """Cut a text to what is shown of it, and mark the place of its first error.

    Args:
        text: A program or a request.
        error: The first error, `line:column: code: message`; None for none.
    """
    place = _PLACE.match(error) if error is not None else None
    if place is None:
        return Excerpt(text[:LONGEST], num_left_out=max(0, len(text) - LONGEST))
    number, column = int(place[1]), int(place[2])
    lines = text.split("\n")
    if number > len(lines):
        return Excerpt(text[:LONGEST], num_left_out=max(0, len(text) - LONGEST))
    line = SourceText(text).line(number)
    start = sum(len(before) + 1 for before in lines[: number - 1])
    return _around(text, line, start, column)


def _around(text: str, line: str, start: int, column: int) -> Excerpt:
    """Return the text with its line marked; cut on both sides of the marked character where it is too long."""
    at, end = start + min(column, len(line)), start + len(line)
    first = max(0, min(at - LONGEST // 2, len(text) - LONGEST))
    last = min(len(text), first + LONGEST)
    return Excerpt(
        before=text[first : max(first, start)],
        line_before=text[max(first, start) : at],
        marked=text[at : min(at + 1, end, last)],
        line_after=text[min(at + 1, end, last) : min(end, last)],
        after=text[min(end, last) : last],
        has_mark=True,
        num_left_out=len(text) - (last - first),
    )
