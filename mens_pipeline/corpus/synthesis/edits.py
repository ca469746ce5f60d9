"""Replacing stretches of a text."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """A stretch of a text and what to put in its place; an empty stretch inserts.

    `start` and `end` count the characters before it and up to its end.
    """

    start: int
    end: int
    text: str


def apply_edits(source: str, edits: Iterable[Edit]) -> str:
    """Return the text with all edits made; every offset counts in the original text.

    Two insertions at one place stay in the order given.

    Raises:
        ValueError: Two edits overlap, or one lies outside the text.
    """
    pieces = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if not position <= edit.start <= edit.end <= len(source):
            raise ValueError(f"{edit} overlaps another edit or lies outside the text")
        pieces += [source[position : edit.start], edit.text]
        position = edit.end
    return "".join((*pieces, source[position:]))
