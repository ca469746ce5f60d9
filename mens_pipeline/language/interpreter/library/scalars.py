"""Argument checks of built-ins (F1), and methods of numbers and bools (F2) and strings (F3)."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from mens_pipeline.language.interpreter.arithmetic import LEAST_INT, MOST_INT, check_range
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.values import (
    NONE,
    Native,
    Value,
    VariantValue,
    byte_length,
    format_value,
    kind_name,
    some,
    type_error,
)

_T = TypeVar("_T")


def _check(kind: type[_T], name: str) -> Callable[[Value, str], _T]:
    def check(value: Value, what: str) -> _T:
        if type(value) is kind:
            found: _T = value
            return found
        raise type_error(f"{what} is {name}, found {kind_name(value)}")

    return check


a_text: Final = _check(str, "a str")
an_int: Final = _check(int, "an int")
a_list: Final[Callable[[Value, str], list[Value]]] = _check(list, "a list")
a_record: Final[Callable[[Value, str], dict[str, Value]]] = _check(dict, "a record")


_INTEGER: Final = re.compile(r"[+-]?0*[0-9]{1,19}")
_FLOAT: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity|nan)", re.ASCII | re.IGNORECASE
)
_MOST_DIGITS: Final = 4000  # below Python's limit of 4,300 digits


def to_int(_machine: Machine, value: Value) -> int:
    """Convert a value to an int, for `int(x)`; a text that is not an int gives 0."""
    if type(value) is int or type(value) is bool:
        return int(value)
    if type(value) is float:
        return 0 if math.isnan(value) else int(max(LEAST_INT, min(MOST_INT, value)))
    if type(value) is str:
        digits = value.strip()
        number = int(digits) if len(digits) <= _MOST_DIGITS and _INTEGER.fullmatch(digits) else 0
        return number if LEAST_INT <= number <= MOST_INT else 0
    raise type_error(f"`int` does not take {kind_name(value)}")


def to_float(_machine: Machine, value: Value) -> float:
    """Convert a value to a float, for `float(x)`; a text that is not a float gives 0.0."""
    if type(value) is float or type(value) is int:
        return float(value)
    if type(value) is str:
        text = value.strip()
        return float(text) if _FLOAT.fullmatch(text) else 0.0
    raise type_error(f"`float` does not take {kind_name(value)}")


def _round(value: float) -> float:
    """Round half away from zero, and keep the sign of zero."""
    if not math.isfinite(value) or value == math.floor(value):
        return value
    below = math.floor(abs(value))
    nearest = below + 1 if abs(value) - below >= 0.5 else below  # noqa: PLR2004 - a half
    return math.copysign(nearest, value)


def _to_whole(name: str, nearest: Callable[[float], int]) -> Native:
    def convert(_machine: Machine, value: float) -> float:
        return math.copysign(nearest(value), value) if math.isfinite(value) else value

    return Native(name, convert, 0, 0)


def by_name(*natives: Native) -> dict[str, Native]:
    return {native.name: native for native in natives}


def getter(name: str) -> Native:
    """Return a method that returns `Some` element at an index from 0, or `None` out of range."""

    def get(_machine: Machine, values: Sequence[Value], index: Value) -> VariantValue:
        place = an_int(index, f"the argument of `{name}`")
        return some(values[place]) if 0 <= place < len(values) else NONE

    return Native(name, get, 1, 1)


TEXTS: Final = {word: Native(word, format_value, 0, 0) for word in ("to_str", "to_string")}
"""Methods of all plain values."""

INT_METHODS: Final[dict[str, Native]] = TEXTS | by_name(
    Native("abs", lambda _machine, value: check_range(abs(value)), 0, 0),
    Native("min", lambda _machine, value, other: min(value, an_int(other, "the argument of `min`")), 1, 1),
    Native("max", lambda _machine, value, other: max(value, an_int(other, "the argument of `max`")), 1, 1),
)
FLOAT_METHODS: Final[dict[str, Native]] = TEXTS | by_name(
    Native("abs", lambda _machine, value: abs(value), 0, 0),
    _to_whole("floor", math.floor),
    _to_whole("ceil", math.ceil),
    Native("round", lambda _machine, value: _round(value), 0, 0),
    Native("sqrt", lambda _machine, value: math.sqrt(value) if value >= 0 else math.nan, 0, 0),
)


_WHITE_SPACE: Final = "".join(
    map(
        chr,
        (*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
    )
)
"""Unicode white space; unlike `str.strip`, without U+001C to U+001F."""


def _charge_text(machine: Machine, text: str) -> str:
    machine.allocate(byte_length(text))
    return text


def _contains(machine: Machine, text: str, part: Value) -> bool:
    machine.charge(len(text) // 64)
    return a_text(part, "the argument of `contains`") in text


def _edge_test(name: str, holds: Callable[[str, str], bool]) -> Native:
    return Native(name, lambda _machine, text, part: holds(text, a_text(part, f"the argument of `{name}`")), 1, 1)


def _split(machine: Machine, text: str, separator: Value = " ") -> list[Value]:
    """Split a text; an empty separator gives an empty string, each character, and an empty string."""
    between = a_text(separator, "the separator")
    machine.allocate(text.count(between) + 1)
    machine.allocate(byte_length(text))
    return list(text.split(between)) if between else ["", *text, ""]


def _replace(machine: Machine, text: str, old: Value, new: Value) -> str:
    before, after = a_text(old, "what `replace` looks for"), a_text(new, "what `replace` writes")
    machine.allocate(len(text) + text.count(before) * max(0, byte_length(after) - len(before)))
    return text.replace(before, after)


def _slice(machine: Machine, text: str, first: Value, last: Value | None = None) -> str:
    start = max(0, an_int(first, "the start of `slice`"))
    end = len(text) if last is None else max(0, an_int(last, "the end of `slice`"))
    return _charge_text(machine, text[start:end])


def _find_text(machine: Machine, text: str, part: Value) -> VariantValue:
    machine.charge(len(text) // 64)
    place = text.find(a_text(part, "the argument of `index_of`"))
    return some(place) if place >= 0 else NONE


def _repeat(machine: Machine, text: str, times: Value) -> str:
    count = an_int(times, "the argument of `repeat`")
    if count < 0:
        raise type_error(f"a string cannot be repeated {count} times")
    machine.allocate(byte_length(text) * count)
    return text * count


def _text_methods(change: Callable[[str], str], *names: str) -> Iterator[Native]:
    for name in names:
        yield Native(name, lambda machine, text: _charge_text(machine, change(text)), 0, 0)


TEXT_METHODS: Final[dict[str, Native]] = TEXTS | by_name(
    *(Native(word, lambda _machine, text: byte_length(text), 0, 0) for word in ("len", "length")),
    Native("is_empty", lambda _machine, text: not text, 0, 0),
    *_text_methods(str.upper, "to_upper", "to_uppercase"),
    *_text_methods(str.lower, "to_lower", "to_lowercase"),
    *_text_methods(lambda text: text.strip(_WHITE_SPACE), "trim"),
    *_text_methods(lambda text: text.lstrip(_WHITE_SPACE), "trim_start"),
    *_text_methods(lambda text: text.rstrip(_WHITE_SPACE), "trim_end"),
    Native("contains", _contains, 1, 1),
    _edge_test("starts_with", str.startswith),
    _edge_test("ends_with", str.endswith),
    Native("split", _split, 0, 1),
    Native("replace", _replace, 2, 2),
    Native("slice", _slice, 1, 2),
    getter("char_at"),
    Native("index_of", _find_text, 1, 1),
    Native("repeat", _repeat, 1, 1),
    Native("chars_count", lambda _machine, text: len(text), 0, 0),
)
