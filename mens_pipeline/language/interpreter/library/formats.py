r"""Text formats: JSON (F7), CSV and paths (F9); regular expressions (F8).

Regular expressions have the syntax of the Rust crate and run on Python's engine, whose searches can take exponential
time: the CPU time of the test bounds them. Syntax of Rust without a counterpart in Python is an `Error`: operations on
classes, named classes such as `[[:alpha:]]`, Unicode properties (`\p{...}`, `\P{...}`), code points in braces
(`\x{...}`, `\u{...}`), word boundaries (`\<`, `\>`, `\b{...}`).
"""

import csv
import io
import json
import math
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mens_pipeline.language.interpreter.arithmetic import LEAST_INT, MOST_INT
from mens_pipeline.language.interpreter.library.scalars import a_list, a_text, an_int, by_name
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.values import (
    NONE,
    UNIT,
    Native,
    Value,
    VariantValue,
    byte_length,
    error,
    kind_name,
    ok,
    some,
    type_error,
)

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)  # one without its end goes to the end of the text
_DIGITS_OF_64_BITS: Final = 20


def parse(machine: Machine, text: Value) -> VariantValue:
    """Parse JSON to a Result, for `std.json.parse`."""
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
    """Parse JSON to a bare value, or to `None` if it is invalid, for `json.parse`."""
    result = parse(machine, text)
    return result.fields[0] if result.name == "Ok" else NONE


def _depth(source: str) -> int:
    """Count levels of brackets before decoding, because the decoder recurses on the C stack."""
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
    if value is None:
        return NONE
    if isinstance(value, list):
        return [_to_value(element) for element in value]
    if isinstance(value, dict):
        return {key: _to_value(field) for key, field in value.items()}
    return value


def stringify(machine: Machine, value: Value, level: int = 0) -> str:
    """Format a value as compact JSON with sorted keys; `level` is its depth in the whole value."""
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
    if value is UNIT or (type(value) is VariantValue and value.name == "None"):
        return "null"
    if type(value) is VariantValue and value.name == "Some" and len(value.fields) == 1:
        return stringify(machine, value.fields[0], level)
    raise type_error(f"{kind_name(value)} has no JSON")


def quote_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def quote(machine: Machine, text: Value) -> str:
    result = quote_json(a_text(text, "what `quote` takes"))
    machine.allocate(byte_length(result))
    return result


def _csv_rows(machine: Machine, text: Value) -> list[list[Value]]:
    source = a_text(text, "what `parse` reads")
    machine.allocate(byte_length(source))
    machine.charge(len(source) // 8)
    return [list(row) for row in csv.reader(io.StringIO(source, newline="")) if row]


def _parse_csv(machine: Machine, text: Value) -> VariantValue:
    try:
        rows = _csv_rows(machine, text)
    except csv.Error as problem:
        return error(f"csv: {problem}")
    uneven = next((number for number, row in enumerate(rows, 1) if len(row) != len(rows[0])), None)
    if uneven is not None:
        return error(f"csv: row {uneven} has {len(rows[uneven - 1])} cells, the first has {len(rows[0])}")
    return ok(rows)


def _parse_csv_records(machine: Machine, text: Value) -> VariantValue:
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


def _render_csv(machine: Machine, rows: Value) -> VariantValue:
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


_LONGEST_PATTERN: Final = 4096
_UNKNOWN_GROUPS: Final = re.compile(r"\?(?:<?[=!]|\(|>|P=|#)")
_MULTILINE: Final = re.compile(r"\(\?[a-z]*m")
_CLASS_OPERATORS: Final = frozenset(("&&", "--", "~~"))
_UNKNOWN_ESCAPES: Final = frozenset((r"\N", r"\Z", r"\<", r"\>"))
_POSSESSIVE: Final = frozenset(("*+", "++", "?+", "}+"))


@dataclass(frozen=True, slots=True, eq=False)
class Regex:
    """A compiled pattern."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True, eq=False)
class MatchValue:
    """One match: its groups, the whole match first; None for a group that did not take part."""

    groups: tuple[str | None, ...]


class _PatternError(ValueError):
    """A pattern that the Rust crate rejects."""


def compile_pattern(machine: Machine, pattern: Value) -> VariantValue:
    text = a_text(pattern, "a pattern")
    if len(text) > _LONGEST_PATTERN:
        return error(f"regex: a pattern of more than {_LONGEST_PATTERN} characters")
    try:
        with machine.interruptible():
            return ok(Regex(re.compile(_translate(text))))
    except (ValueError, re.error, OverflowError) as problem:
        return error(f"regex: {problem}")


def _translate(text: str) -> str:
    end = "$" if _MULTILINE.search(text) else r"\Z"
    parts: list[str] = []
    index, in_class = 0, False
    while index < len(text):
        piece = text[index : index + 2] if text[index] == "\\" else text[index]
        _refuse(piece in _UNKNOWN_ESCAPES, f"`{piece}` is not supported")
        if in_class:
            in_class = piece != "]" or parts[-1] in {"[", "[^"}
            _refuse(
                text[index : index + 2] in _CLASS_OPERATORS or piece == "[", "operations on classes are not supported"
            )
            piece = r"\|" if piece == "|" else piece
        elif piece == "[":
            piece = "[^" if text.startswith("[^", index) else "["
            in_class = True
        else:
            _check_piece(text, index, piece)
            piece = "(?<" if text.startswith("(?<", index) else piece
        parts.append({"$": end, r"\z": r"\Z", "(?<": "(?P<"}.get(piece, piece) if not in_class else piece)
        index += len(piece) if text.startswith(piece, index) else 1
    return "".join(parts)


def _check_piece(text: str, index: int, piece: str) -> None:
    _refuse(piece == r"\b" and text.startswith("{", index + 2), r"`\b{...}` is not supported")
    _refuse(text.startswith("{,", index), "a repetition without its least number is not supported: write `{0,n}`")
    _refuse(piece[0] == "\\" and piece[1:].isdigit(), "back-references are not supported")
    _refuse(
        piece == "(" and _UNKNOWN_GROUPS.match(text, index + 1) is not None,
        "look-around, conditions and atomic groups are not supported",
    )
    _refuse(text[index : index + 2] in _POSSESSIVE, "possessive quantifiers are not supported")


def _refuse(condition: bool, problem: str) -> None:  # noqa: FBT001 - reads as a sentence
    if condition:
        raise _PatternError(problem)


def _find(machine: Machine, regex: Regex, text: Value) -> VariantValue:
    found = _search(machine, regex, text)
    return NONE if found is None else some(_to_match(found))


def _find_all(machine: Machine, regex: Regex, text: Value) -> list[Value]:
    matches: list[Value] = []
    with machine.interruptible():
        for found in regex.pattern.finditer(_subject(machine, text)):
            machine.allocate(1 + len(found.group()))
            machine.charge(1)
            matches.append(_to_match(found))
    return matches


def _search(machine: Machine, regex: Regex, text: Value) -> re.Match[str] | None:
    with machine.interruptible():
        return regex.pattern.search(_subject(machine, text))


def _subject(machine: Machine, text: Value) -> str:
    subject = a_text(text, "what a regex searches")
    machine.charge(len(subject) // 8)
    return subject


def _to_match(found: re.Match[str]) -> MatchValue:
    return MatchValue((found.group(), *found.groups()))


def _group(_machine: Machine, match: MatchValue, index: Value) -> VariantValue:
    number = an_int(index, "the argument of `group`")
    group = match.groups[number] if 0 <= number < len(match.groups) else None
    return NONE if group is None else some(group)


REGEX_METHODS: Final = by_name(
    Native("matches", lambda *found: _search(*found) is not None, 1, 1),
    Native("find", _find, 1, 1),
    Native("find_all", _find_all, 1, 1),
)
MATCH_METHODS: Final = by_name(Native("group", _group, 1, 1))
