"""Output for people: names, messages and figures may hold text of a stranger, so control characters are escaped."""

from collections.abc import Iterator, Sequence
from typing import Final

import typer

from mens_pipeline.language.visible_text import visible_text

INTERRUPTED: Final = 130
"""The exit code of a command that a person ended: 128 and the number of SIGINT, as shells have it."""


def say(text: str, *, err: bool = False) -> None:
    """Print a line for people; escape sequences and other characters that do not show become marks.

    A text with colours of our own is printed by `typer.echo`, made of parts that were cleaned.
    """
    typer.echo(visible_text(text), err=err)


def tell(line: str) -> None:
    """Print a line about what is done, beside the results: on stderr."""
    say(line, err=True)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each row of cells, its columns as wide as their widest cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
