"""Comma-separated values and paths (F9)."""

import csv
import io
import posixpath
from collections.abc import Callable
from typing import Final

from mens_pipeline.language.interpreter.library.arguments import a_list, a_text
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.text_form import byte_length
from mens_pipeline.language.interpreter.values import Native, Value, Variant, error, ok


def _rows(machine: Machine, text: Value) -> list[list[Value]]:
    source = a_text(text, "what `parse` reads")
    machine.allocate(byte_length(source))
    machine.charge(len(source) // 8)
    return [list(row) for row in csv.reader(io.StringIO(source, newline="")) if row]


def _parse(machine: Machine, text: Value) -> Variant:
    """Return rows of the same length; blank lines are skipped."""
    try:
        rows = _rows(machine, text)
    except csv.Error as problem:
        return error(f"csv: {problem}")
    uneven = next((number for number, row in enumerate(rows, 1) if len(row) != len(rows[0])), None)
    if uneven is not None:
        return error(f"csv: row {uneven} has {len(rows[uneven - 1])} cells, the first has {len(rows[0])}")
    return ok(rows)


def _parse_records(machine: Machine, text: Value) -> Variant:
    """Return rows as records named by the first line; surplus cells are called by their positions."""
    try:
        rows = _rows(machine, text)
    except csv.Error as problem:
        return error(f"csv: {problem}")
    if not rows:
        return ok([])
    header = [str(name) for name in rows[0]]
    return ok(
        [
            {header[at] if at < len(header) else f"column_{at + 1}": cell for at, cell in enumerate(row)}
            for row in rows[1:]
        ]
    )


def _render(machine: Machine, rows: Value) -> Variant:
    """Minimal quoting, lines ended by LF."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    for row in a_list(rows, "what `render` writes"):
        cells = [a_text(cell, "a cell") for cell in a_list(row, "a row")]
        machine.allocate(sum(map(byte_length, cells)) + len(cells))
        writer.writerow(cells)
    return ok(target.getvalue())


CSV: Final = {
    "parse": Native("std.csv.parse", _parse, 1, 1),
    "parse_records": Native("std.csv.parse_records", _parse_records, 1, 1),
    "render": Native("std.csv.render", _render, 1, 1),
}


def _join(machine: Machine, first: Value, second: Value) -> str:
    return _join_many(machine, [first, second])


def _join_many(machine: Machine, parts: Value) -> str:
    texts = [a_text(part, "a part of a path") for part in a_list(parts, "what `join_many` takes")]
    machine.allocate(sum(map(byte_length, texts)) + len(texts))
    return posixpath.join(*texts) if texts else ""


def _part(name: str, cut: Callable[[str], str]) -> Native:
    return Native(f"std.path.{name}", lambda _machine, path: cut(a_text(path, "a path")), 1, 1)


PATH: Final = {
    "join": Native("std.path.join", _join, 2, 2),
    "join_many": Native("std.path.join_many", _join_many, 1, 1),
    "basename": _part("basename", posixpath.basename),
    "dirname": _part("dirname", posixpath.dirname),
    "extension": _part("extension", lambda path: posixpath.splitext(path)[1].removeprefix(".")),
}
