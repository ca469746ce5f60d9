"""Output for people: names, messages and figures may hold text of a stranger, so control characters are escaped."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import typer

from mens_pipeline.language import visible_text
from mens_pipeline.storage.jsonl import write_text

REFUSED: Final = 1
MISUSE: Final = 2
INTERRUPTED: Final = 130
"""The exit code of a command that a person ended: 128 and the number of SIGINT, as shells have it."""


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line for people; escape sequences and other characters that do not show become marks.

    A text with colours of our own is printed by `typer.echo`, made of parts that were cleaned.
    """
    typer.echo(visible_text(text), err=err)


def log_line(line: str) -> None:
    """Print a line about what is done, beside the results: on stderr."""
    print_line(line, err=True)


def show(document: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result: as one JSON document, or as lines for people."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        print_line(line)


def print_json(document: Any) -> None:
    """Print a result as one JSON document."""
    typer.echo(json.dumps(document, indent=2))


def write_report(path: Path | None, document: dict[str, Any]) -> None:
    """Write what came of a command as JSON, where a file was named for it."""
    if path is not None:
        write_text(path, json.dumps(document, indent=2) + "\n")


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """End with a line that says how to go on where a person interrupts what is done."""
    try:
        yield
    except KeyboardInterrupt:
        log_line(f"interrupted; {advice}")
        raise typer.Exit(INTERRUPTED) from None


def align_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each row of cells, its columns as wide as their widest cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
