"""A diagnostic as a compiler prints it: the place, the line, a caret, the advice."""

import unicodedata
from typing import Final

import typer

from mens_pipeline.language.diagnostics import Diagnostic, Severity
from mens_pipeline.language.source_text import SourceText
from mens_pipeline.language.visible_text import visible_text

_MOST_COLUMNS: Final = 100
_COLOURS: Final = {Severity.ERROR: typer.colors.RED, Severity.WARNING: typer.colors.YELLOW}


def render(path: str, source: SourceText, diagnostic: Diagnostic) -> str:
    """Format a diagnostic for people, in colours that `typer.echo` may strip; line and column count from 1."""
    place = diagnostic.start
    label = typer.style(f"{diagnostic.severity}[{diagnostic.code}]", fg=_COLOURS[diagnostic.severity], bold=True)
    line, column, width = _window(source.line(place.line), place.column, _length(diagnostic))
    indent = "".join("\t" if c == "\t" else " " * _cells(c) for c in line[:column])
    marks = "^" * max(1, sum(map(_cells, line[column : column + width])))
    gutter = " " * len(str(place.line))
    lines = [
        f"{visible_text(path)}:{place.line}:{place.column + 1}: {label}: {visible_text(diagnostic.message)}",
        f" {place.line} | {_printable(line)}",
        f" {gutter} | {indent}{typer.style(marks, fg=_COLOURS[diagnostic.severity], bold=True)}",
    ]
    if diagnostic.advice:
        lines.append(f" {gutter} = help: {visible_text(diagnostic.advice)}")
    return "\n".join(lines)


def _length(diagnostic: Diagnostic) -> int:
    same_line = diagnostic.end.line == diagnostic.start.line
    return diagnostic.end.column - diagnostic.start.column if same_line else 1


def _window(line: str, column: int, width: int) -> tuple[str, int, int]:
    """Return a stretch of a long line around the column, with the column and width in it."""
    if len(line) <= _MOST_COLUMNS:
        return line, column, width
    first = max(0, column - _MOST_COLUMNS // 2)
    lead = "…" if first else ""
    tail = "…" if first + _MOST_COLUMNS < len(line) else ""
    shown = lead + line[first : first + _MOST_COLUMNS] + tail
    inside = column - first + len(lead)
    return shown, inside, min(width, len(shown) - inside)


def _cells(character: str) -> int:
    """Return the columns that a character takes on a terminal."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line)
