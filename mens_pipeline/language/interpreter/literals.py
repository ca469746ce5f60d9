"""The text of an expression that evaluates to a given value."""

import math
import re
from decimal import Decimal
from typing import Final

from mens_pipeline.language.interpreter.text_form import float_text
from mens_pipeline.language.interpreter.values import UNIT, Value, Variant
from mens_pipeline.language.vocabulary import KEYWORDS

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LEAST_INT: Final = -(2**63)
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"})
MOST_LEVELS: Final = 20
"""Deeper values are given up: nobody reads them, and Python recurses here."""


def literal_of(value: Value, level: int = 0) -> str | None:
    """Write an expression for a value.

    `level` is how deep it lies in the value that is written.

    Returns:
        Vox text; None for a value that no expression gives: a function, a namespace, an actor, NaN, a string that is no
        Unicode text, or one that is nested more than 20 levels deep.
    """
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        # The least int has no literal: its digits alone are out of range (L5).
        return str(value) if value > _LEAST_INT else f"({_LEAST_INT + 1} - 1)"
    if kind is str:
        return _string(value)
    if kind is float:
        return _float(value)
    if kind is Decimal:
        return f"{value:f}dec"
    if level >= MOST_LEVELS:
        return None
    return _compound(value, level + 1)


def _compound(value: Value, level: int) -> str | None:
    kind = type(value)
    if kind is list:
        return _listed("[", value, "]", level)
    if kind is tuple:
        return _listed("(", value, ",)" if len(value) == 1 else ")", level)
    if kind is dict:
        return _record(value, level)
    if kind is Variant:
        return _listed(f"{value.name}(", value.fields, ")", level) if value.fields else str(value.name)
    return "Unit" if value is UNIT else None


def _listed(opener: str, values: list[Value] | tuple[Value, ...], closer: str, level: int) -> str | None:
    texts = [literal_of(value, level) for value in values]
    return None if None in texts else f"{opener}{', '.join(map(str, texts))}{closer}"


def _record(value: dict[str, Value], level: int) -> str | None:
    fields = []
    for key, field in value.items():
        is_plain = _PLAIN_KEY.fullmatch(key) is not None and key not in KEYWORDS
        name, text = key if is_plain else _string(key), literal_of(field, level)
        if name is None or text is None:
            return None
        fields.append(f"{name}: {text}")
    return f"{{ {', '.join(fields)} }}" if fields else "{}"


def _string(value: str) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return f'"{value.translate(_ESCAPES)}"'


def _float(value: float) -> str | None:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "(1.0 / 0.0)" if value > 0 else "(-1.0 / 0.0)"
    digits = float_text(value)
    return digits if "." in digits else f"{digits}.0"
