"""Methods of numbers and bools (F2), and how strings and numbers become numbers (F1)."""

import math
import re
from typing import Final

from mens_pipeline.language.interpreter.arithmetic import LEAST_INT, MOST_INT, ranged
from mens_pipeline.language.interpreter.library.arguments import an_int
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.text_form import text_of
from mens_pipeline.language.interpreter.values import Native, Value, kind_name, type_error

_INTEGER: Final = re.compile(r"[+-]?0*[0-9]{1,19}")
_FLOAT: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity|nan)", re.ASCII | re.IGNORECASE
)
_MOST_DIGITS: Final = 4000
"""Below what Python refuses to read; so many digits can only be leading zeros."""


def to_int(_machine: Machine, value: Value) -> int:
    """`int(x)`: 0 for what cannot be read."""
    if type(value) is int or type(value) is bool:
        return int(value)
    if type(value) is float:
        return _truncated(value)
    if type(value) is str:
        digits = value.strip()
        number = int(digits) if len(digits) <= _MOST_DIGITS and _INTEGER.fullmatch(digits) else 0
        return number if LEAST_INT <= number <= MOST_INT else 0
    raise type_error(f"`int` does not take {kind_name(value)}")


def _truncated(value: float) -> int:
    if math.isnan(value):
        return 0
    if abs(value) < MOST_INT:
        return int(value)
    return MOST_INT if value > 0 else LEAST_INT


def to_float(_machine: Machine, value: Value) -> float:
    """`float(x)`: 0.0 for what cannot be read."""
    if type(value) is float or type(value) is int:
        return float(value)
    if type(value) is str:
        text = value.strip()
        return float(text) if _FLOAT.fullmatch(text) else 0.0
    raise type_error(f"`float` does not take {kind_name(value)}")


def _rounded(value: float) -> float:
    """Round half away from zero; the sign of zero is kept."""
    if not math.isfinite(value) or value == math.floor(value):
        return value
    below = math.floor(abs(value))
    nearest = below + 1 if abs(value) - below >= 0.5 else below  # noqa: PLR2004 - a half
    return math.copysign(nearest, value)


def _whole(value: float, nearest: float) -> float:
    return math.copysign(nearest, value) if nearest == 0 else nearest


def _floor(_machine: Machine, value: float) -> float:
    return _whole(value, float(math.floor(value))) if math.isfinite(value) else value


def _ceil(_machine: Machine, value: float) -> float:
    return _whole(value, float(math.ceil(value))) if math.isfinite(value) else value


def _root(_machine: Machine, value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


TEXTS: Final = {word: Native(word, text_of, 0, 0) for word in ("to_str", "to_string")}
"""What all plain values have."""

INT_METHODS: Final[dict[str, Native]] = TEXTS | {
    "abs": Native("abs", lambda _machine, value: ranged(abs(value)), 0, 0),
    "min": Native("min", lambda _machine, value, other: min(value, an_int(other, "the argument of `min`")), 1, 1),
    "max": Native("max", lambda _machine, value, other: max(value, an_int(other, "the argument of `max`")), 1, 1),
}
FLOAT_METHODS: Final[dict[str, Native]] = TEXTS | {
    "abs": Native("abs", lambda _machine, value: abs(value), 0, 0),
    "floor": Native("floor", _floor, 0, 0),
    "ceil": Native("ceil", _ceil, 0, 0),
    "round": Native("round", lambda _machine, value: _rounded(value), 0, 0),
    "sqrt": Native("sqrt", _root, 0, 0),
}
