"""The text of a value, as `str`, `print`, `+` and `join` give it (V14)."""

import math
from decimal import Decimal

from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.values import NONE, UNIT, Value, Variant

_SHOWN = 120
"""Characters of a value that a message quotes."""


def byte_length(text: str) -> int:
    """Return bytes of a string in UTF-8, which is what `len` counts (V4); a lone surrogate counts three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def float_text(value: float) -> str:
    """Format a float with the shortest digits that read back, without exponent and without a final `.0`."""
    if math.isnan(value):
        return "NaN"
    digits = repr(value)
    if "e" in digits:
        digits = format(Decimal(digits), "f")
    return digits.removesuffix(".0")


def text_of(machine: Machine, value: Value, level: int = 0) -> str:
    """Return the text of a value.

    `level` is how deep it lies in the value that is printed; the running test is charged for it.

    Raises:
        VoxError: The text is too long, or the value too deep.
    """
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float:
        return float_text(value)
    if kind is Decimal:
        return format(value, "f")
    machine.descend(level)
    text = _compound(machine, value, level + 1)
    machine.allocate(byte_length(text))
    return text


def _compound(machine: Machine, value: Value, level: int) -> str:
    kind = type(value)
    if kind is list:
        return f"[{_joined(machine, value, level)}]"
    if kind is tuple:
        return f"({_joined(machine, value, level)})"
    if kind is dict:
        return f"{{{', '.join(f'{key}: {text_of(machine, field, level)}' for key, field in value.items())}}}"
    if kind is Variant:
        if value is NONE:
            return "null"
        return f"{value.name}({_joined(machine, value.fields, level)})" if value.fields else str(value.name)
    return "Unit" if value is UNIT else "<fn>"


def _joined(machine: Machine, values: list[Value] | tuple[Value, ...], level: int) -> str:
    return ", ".join([text_of(machine, value, level) for value in values])


def shown(machine: Machine, value: Value) -> str:
    """Format a value for a message: its text, strings quoted, cut where it is long."""
    try:
        text = f'"{value}"' if type(value) is str else text_of(machine, value)
    except VoxError:
        return "a value too large to show"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
