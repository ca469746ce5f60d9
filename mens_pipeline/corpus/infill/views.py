"""The text around a cursor as editors send it: a window of the file, or a file with an unfinished line above.

Training rows, held-out holes and benches share these views, so that a model is trained and evaluated on the text that
it is served.
"""

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

View = Callable[[str, str], tuple[str, str]]
"""Takes the text before and after a cursor, and returns the parts that a client sends."""

_WORD: Final = re.compile(r"\S+")


def view_lines(before: int, after: int) -> View:
    """Return a view of the cursor's line, with `before` lines above it and `after` lines below it."""

    def view(prefix: str, suffix: str) -> tuple[str, str]:
        return "\n".join(prefix.split("\n")[-before - 1 :]), "\n".join(suffix.split("\n")[: after + 1])

    return view


def view_characters(before: int, after: int) -> View:
    """Return a view of `before` characters before the cursor and `after` characters after it."""
    return lambda prefix, suffix: (prefix[-before:], suffix[:after])


WINDOWS: Final[Mapping[str, View]] = {
    "llama.vim, 256 and 64 lines": view_lines(256, 64),
    "Tabby, 20 and 20 lines": view_lines(20, 20),
    "Continue, 1,300 and 900 characters": view_characters(1_300, 900),
    "1,100 and 1,100 characters": view_characters(1_100, 1_100),
    "600 and 300 characters": view_characters(600, 300),
}
"""Default windows of clients; limits in tokens are converted to characters of typical Vox programs."""


def leave_line_unfinished(prefix: str, suffix: str, dice: Random) -> tuple[str, str]:
    """Cut a line above the cursor's line after one of its words; a prefix without such a line stays unchanged."""
    *above, own = prefix.split("\n")
    numbers = [number for number, line in enumerate(above) if len(line.split()) > 1]
    if numbers:
        number = dice.choice(numbers)
        above[number] = above[number][: dice.choice([word.end() for word in _WORD.finditer(above[number])][:-1])]
    return "\n".join([*above, own]), suffix


def draw_view(prefix: str, suffix: str, share: float, dice: Random) -> tuple[str, str]:
    """Draw a view of a cursor: the whole text, or with a chance of `share` a window or an unfinished line above."""
    if dice.random() >= share:
        return prefix, suffix
    views: list[View] = [*WINDOWS.values(), lambda before, after: leave_line_unfinished(before, after, dice)]
    return dice.choice(views)(prefix, suffix)
