"""Vox values in Python: their equality, their text, and expressions for them.

An int is an `int` (never a `bool`), a decimal a `Decimal`, a record a `dict`; float, bool, str, list and tuple are the
Python types. Lists and dicts are immutable as values: "mutation" is rebinding (V6).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.language.interpreter.results import ErrorKind, Refusal, VoxError
from mens_pipeline.language.vocabulary import KEYWORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mens_pipeline.language.interpreter.machine import Machine

Value = Any
"""Any of the above, or an object of one of the classes below."""


@dataclass(frozen=True, slots=True, eq=False)
class VariantValue:
    """A value of a sum type, of Option or of Result (V9-V11); compare with `equal`."""

    name: str
    fields: tuple[Value, ...] = ()


class UnitValue:
    """The type of `UNIT`."""

    __slots__ = ()


UNIT: Final = UnitValue()
NONE: Final = VariantValue("None")
"""`None`, also named `null` (V12)."""


def some(value: Value) -> VariantValue:
    return VariantValue("Some", (value,))


def ok(value: Value) -> VariantValue:
    return VariantValue("Ok", (value,))


def error(message: Value) -> VariantValue:
    return VariantValue("Error", (message,))


def arity_error(name: str, expected: str, found: int) -> VoxError:
    """Return the error for a wrong number of arguments (C2)."""
    return VoxError(ErrorKind.ARITY_ERROR, f"`{name}` takes {expected} arguments and was given {found}")


@dataclass(frozen=True, slots=True, eq=False)
class Constructor:
    """The constructor of a variant with payload (V9)."""

    name: str
    parameter_names: tuple[str, ...]

    def invoke(self, _machine: Machine, arguments: list[Value]) -> VariantValue:
        """Create the variant; raise a `VoxError` for a wrong number of arguments."""
        if len(arguments) != len(self.parameter_names):
            raise arity_error(self.name, str(len(self.parameter_names)), len(arguments))
        return VariantValue(self.name, tuple(arguments))


@dataclass(frozen=True, slots=True, eq=False)
class Native:
    """A built-in; `function` takes the machine, the receiver of a method, and `fewest` to `most` arguments."""

    name: str
    function: Callable[..., Value]
    fewest: int
    most: int

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Empty, because parameters of built-ins have no names (C4)."""
        return ()

    def check(self, found: int) -> None:
        """Raise a `VoxError` for a wrong number of arguments."""
        if not self.fewest <= found <= self.most:
            expected = str(self.fewest) if self.fewest == self.most else f"{self.fewest} to {self.most}"
            raise arity_error(self.name, expected, found)

    def invoke(self, machine: Machine, arguments: list[Value]) -> Value:
        """Check the number of arguments, and call the function."""
        self.check(len(arguments))
        return self.function(machine, *arguments)


@dataclass(frozen=True, slots=True, eq=False)
class Namespace:
    """`std` and namespaces below it; `path` is how programs write it."""

    path: str
    members: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """A name that needs access to the outside (U1)."""

    reason: Refusal
    name: str

    def fault(self) -> VoxError:
        return VoxError(self.reason, f"`{self.name}` needs {self.reason}, which this run does not provide")


@dataclass(frozen=True, slots=True, eq=False)
class ActorValue:
    """An actor, or a handle to it: actors have no state (U2)."""

    name: str
    handlers: dict[str, Any]
    is_handle: bool = False


_KINDS: Final[dict[type, str]] = {
    int: "int",
    float: "float",
    Decimal: "dec",
    str: "str",
    bool: "bool",
    list: "list",
    tuple: "tuple",
    dict: "record",
    UnitValue: "Unit",
    Constructor: "function",
    Native: "function",
    Namespace: "namespace",
    ActorValue: "actor",
}


def kind_name(value: Value) -> str:
    """Return the name of a value's kind, for messages: a `TableValue` is a table."""
    if type(value) is VariantValue:
        return f"`{value.name}`"
    return _KINDS.get(type(value)) or type(value).__name__.lower().removesuffix("value")


def type_error(message: str) -> VoxError:
    """Return the error for an operand or argument of the wrong kind."""
    return VoxError(ErrorKind.TYPE_ERROR, message)


_SHOWN = 120  # characters of a value that a message quotes


def byte_length(text: str) -> int:
    """Return the bytes of a string in UTF-8, as `len` counts (V4); a lone surrogate counts three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def float_text(value: float) -> str:
    """Format a float with the shortest digits that round-trip, without an exponent or a final `.0`."""
    if math.isnan(value):
        return "NaN"
    digits = repr(value)
    if "e" in digits:
        digits = format(Decimal(digits), "f")
    return digits.removesuffix(".0")


def format_value(machine: Machine, value: Value, level: int = 0) -> str:
    """Format a value, and charge the test for it; `level` is its depth in the whole value."""
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
        return f"[{_join(machine, value, level)}]"
    if kind is tuple:
        return f"({_join(machine, value, level)})"
    if kind is dict:
        return f"{{{', '.join(f'{key}: {format_value(machine, field, level)}' for key, field in value.items())}}}"
    if kind is VariantValue:
        if value is NONE:
            return "null"
        return f"{value.name}({_join(machine, value.fields, level)})" if value.fields else str(value.name)
    return "Unit" if value is UNIT else "<fn>"


def _join(machine: Machine, values: list[Value] | tuple[Value, ...], level: int) -> str:
    return ", ".join([format_value(machine, value, level) for value in values])


def quote_value(machine: Machine, value: Value) -> str:
    """Format a value for a message: strings quoted, long texts cut."""
    try:
        text = f'"{value}"' if type(value) is str else format_value(machine, value)
    except VoxError:
        return "a value too large to show"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_PLAIN = frozenset((int, float, bool, str, Decimal))
_LONG = 256  # characters above which comparing two strings costs steps


def equal(machine: Machine, left: Value, right: Value, level: int = 0) -> bool:
    """Compare two values, and charge the test; values of different kinds differ, and functions equal nothing."""
    kind = type(left)
    if kind is not type(right):
        return False
    if kind in _PLAIN:
        if kind is str and len(left) > _LONG:
            machine.charge(len(left) // _LONG)
        return bool(left == right)
    machine.descend(level)
    if kind is list or kind is tuple:
        return len(left) == len(right) and _all_equal(machine, left, right, level + 1)
    if kind is dict:
        return left.keys() == right.keys() and all(equal(machine, left[key], right[key], level + 1) for key in left)
    if kind is VariantValue:
        same = left.name == right.name and len(left.fields) == len(right.fields)
        return same and _all_equal(machine, left.fields, right.fields, level + 1)
    return left is UNIT


def _all_equal(
    machine: Machine, left: list[Value] | tuple[Value, ...], right: list[Value] | tuple[Value, ...], level: int
) -> bool:
    return all(equal(machine, a, b, level) for a, b in zip(left, right, strict=True))


_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LEAST_INT: Final = -(2**63)
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"})
MOST_LEVELS: Final = 20
"""Most levels of a value with a literal: nobody reads deeper values, and `literal_of` recurses."""


def literal_of(value: Value, level: int = 0) -> str | None:
    """Return a Vox expression for a value; `level` is its depth in the whole value.

    Return None for a value without one: a function, a namespace, an actor, NaN, a string with a lone surrogate, or a
    value nested more than 20 levels deep.
    """
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        # The smallest int has no literal: its digits are out of range (L5).
        return str(value) if value > _LEAST_INT else f"({_LEAST_INT + 1} - 1)"
    if kind is str:
        return _string_literal(value)
    if kind is float:
        return _float_literal(value)
    if kind is Decimal:
        return f"{value:f}dec"
    if level >= MOST_LEVELS:
        return None
    return _compound_literal(value, level + 1)


def _compound_literal(value: Value, level: int) -> str | None:
    kind = type(value)
    if kind is list:
        return _listed_literal("[", value, "]", level)
    if kind is tuple:
        return _listed_literal("(", value, ",)" if len(value) == 1 else ")", level)
    if kind is dict:
        return _record_literal(value, level)
    if kind is VariantValue:
        return _listed_literal(f"{value.name}(", value.fields, ")", level) if value.fields else str(value.name)
    return "Unit" if value is UNIT else None


def _listed_literal(opener: str, values: list[Value] | tuple[Value, ...], closer: str, level: int) -> str | None:
    texts = [literal_of(value, level) for value in values]
    return None if None in texts else f"{opener}{', '.join(map(str, texts))}{closer}"


def _record_literal(value: dict[str, Value], level: int) -> str | None:
    fields = []
    for key, field in value.items():
        is_plain = _PLAIN_KEY.fullmatch(key) is not None and key not in KEYWORDS
        name, text = key if is_plain else _string_literal(key), literal_of(field, level)
        if name is None or text is None:
            return None
        fields.append(f"{name}: {text}")
    return f"{{ {', '.join(fields)} }}" if fields else "{}"


def _string_literal(value: str) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return f'"{value.translate(_ESCAPES)}"'


def _float_literal(value: float) -> str | None:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "(1.0 / 0.0)" if value > 0 else "(-1.0 / 0.0)"
    digits = float_text(value)
    return digits if "." in digits else f"{digits}.0"
