"""Text in formats: JSON (F7), comma-separated values and paths (F9)."""

import csv
import io
import json
import math
import posixpath
import re
from collections.abc import Callable
from typing import Any, Final

from mens_pipeline.language.interpreter.arithmetic import LEAST_INT, MOST_INT
from mens_pipeline.language.interpreter.library.scalars import a_list, a_text
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.values import (
    NONE,
    UNIT,
    Native,
    Value,
    Variant,
    byte_length,
    error,
    kind_name,
    ok,
    type_error,
)

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_DIGITS_OF_64_BITS: Final = 20


def parse(machine: Machine, text: Value) -> Variant:
    """`std.json.parse`: a Result."""
    source = a_text(text, "what `parse` reads")
    machine.allocate(byte_length(source))
    machine.charge(len(source) // 8)
    if _depth(source) > machine.limits.max_nesting:
        return error(f"json: more than {machine.limits.max_nesting} levels")
    try:
        return ok(_to_value(_DECODER.decode(source)))
    except ValueError as problem:
        return error(f"json: {problem}")


def parse_or_none(machine: Machine, text: Value) -> Value:
    """`json.parse`: the bare value, `None` for what is no JSON."""
    result = parse(machine, text)
    return result.fields[0] if result.name == "Ok" else NONE


def _depth(source: str) -> int:
    """Count the levels of brackets first, because the decoder recurses on the C stack."""
    depth = most = 0
    for character in re.sub(r"[^\[\]{}]", "", _STRING.sub("", source)):
        depth += 1 if character in "[{" else -1
        most = max(most, depth)
    return most


def _integer(digits: str) -> Value:
    if len(digits) <= _DIGITS_OF_64_BITS and LEAST_INT <= int(digits) <= MOST_INT:
        return int(digits)
    return _float(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"number {digits[:40]} is out of range")
    return value


def _refuse_constant(word: str) -> Value:
    raise ValueError(f"{word} is no JSON")


_DECODER: Final = json.JSONDecoder(
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_refuse_constant,
    object_pairs_hook=lambda pairs: dict(sorted(dict(pairs).items())),
)


def _to_value(value: Any) -> Value:
    """Convert what the decoder made to values of the language."""
    if value is None:
        return NONE
    if isinstance(value, list):
        return [_to_value(element) for element in value]
    if isinstance(value, dict):
        return {key: _to_value(field) for key, field in value.items()}
    return value


def stringify(machine: Machine, value: Value, level: int = 0) -> str:
    """`json.stringify`: compact, keys sorted; `level` is how deep it lies in the value that is written."""
    machine.descend(level)
    text = _format_json(machine, value, level + 1)
    machine.allocate(byte_length(text))
    return text


def _format_json(machine: Machine, value: Value, level: int) -> str:
    kind = type(value)
    if kind is str:
        return quote_json(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float:
        return repr(value).replace("e+", "e").replace("e-0", "e-") if math.isfinite(value) else "null"
    if kind is list or kind is tuple:
        return f"[{','.join([stringify(machine, element, level) for element in value])}]"
    if kind is dict:
        fields = [f"{quote_json(key)}:{stringify(machine, value[key], level)}" for key in sorted(value)]
        return f"{{{','.join(fields)}}}"
    if value is UNIT or (type(value) is Variant and value.name == "None"):
        return "null"
    if type(value) is Variant and value.name == "Some" and len(value.fields) == 1:
        return stringify(machine, value.fields[0], level)
    raise type_error(f"{kind_name(value)} has no JSON")


def quote_json(text: str) -> str:
    """Format a text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def quote(machine: Machine, text: Value) -> str:
    """`std.json.quote`."""
    result = quote_json(a_text(text, "what `quote` takes"))
    machine.allocate(byte_length(result))
    return result


def _csv_rows(machine: Machine, text: Value) -> list[list[Value]]:
    source = a_text(text, "what `parse` reads")
    machine.allocate(byte_length(source))
    machine.charge(len(source) // 8)
    return [list(row) for row in csv.reader(io.StringIO(source, newline="")) if row]


def _parse_csv(machine: Machine, text: Value) -> Variant:
    """Return rows of the same length; blank lines are skipped."""
    try:
        rows = _csv_rows(machine, text)
    except csv.Error as problem:
        return error(f"csv: {problem}")
    uneven = next((number for number, row in enumerate(rows, 1) if len(row) != len(rows[0])), None)
    if uneven is not None:
        return error(f"csv: row {uneven} has {len(rows[uneven - 1])} cells, the first has {len(rows[0])}")
    return ok(rows)


def _parse_csv_records(machine: Machine, text: Value) -> Variant:
    """Return rows as records named by the first line; surplus cells are called by their positions."""
    try:
        rows = _csv_rows(machine, text)
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


def _render_csv(machine: Machine, rows: Value) -> Variant:
    """Minimal quoting, lines ended by LF."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    for row in a_list(rows, "what `render` writes"):
        cells = [a_text(cell, "a cell") for cell in a_list(row, "a row")]
        machine.allocate(sum(map(byte_length, cells)) + len(cells))
        writer.writerow(cells)
    return ok(target.getvalue())


CSV: Final = {
    "parse": Native("std.csv.parse", _parse_csv, 1, 1),
    "parse_records": Native("std.csv.parse_records", _parse_csv_records, 1, 1),
    "render": Native("std.csv.render", _render_csv, 1, 1),
}


def _join_paths(machine: Machine, parts: Value) -> str:
    texts = [a_text(part, "a part of a path") for part in a_list(parts, "what `join_many` takes")]
    machine.allocate(sum(map(byte_length, texts)) + len(texts))
    return posixpath.join(*texts) if texts else ""


def _path_part(name: str, cut: Callable[[str], str]) -> Native:
    return Native(f"std.path.{name}", lambda _machine, path: cut(a_text(path, "a path")), 1, 1)


PATH: Final = {
    "join": Native("std.path.join", lambda machine, *parts: _join_paths(machine, list(parts)), 2, 2),
    "join_many": Native("std.path.join_many", _join_paths, 1, 1),
    "basename": _path_part("basename", posixpath.basename),
    "dirname": _path_part("dirname", posixpath.dirname),
    "extension": _path_part("extension", lambda path: posixpath.splitext(path)[1].removeprefix(".")),
}
