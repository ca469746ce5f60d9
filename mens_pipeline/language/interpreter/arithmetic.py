"""Operators on values (O2-O6), and decimals of 96 bits with up to 28 fractional digits (V3)."""

import math
import operator
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Final

from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import ErrorKind, VoxError
from mens_pipeline.language.interpreter.values import Value, byte_length, equal, format_value, kind_name, type_error

_MOST_SCALE: Final = 28
_BOUND: Final = 2**96
_EXACT: Final = Context(prec=120, rounding=ROUND_HALF_EVEN, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Exact for every sum and product of two decimals; a quotient rounded here is never a tie at 28 digits."""


def parse_decimal(text: str) -> Decimal:
    """Return the value of a decimal literal; raise a `VoxError` if it does not fit."""
    return _fit(Decimal(text))


def decimal_operation(op: str, left: Decimal, right: Decimal) -> Decimal:
    """Compute `+ - * / %` on two decimals, rounded once."""
    if op in {"Div", "Mod"} and not right:
        raise VoxError(ErrorKind.DIVISION_BY_ZERO, f"a decimal is divided by {right}")
    return _fit(_OPERATIONS[op](left, right))


_OPERATIONS: Final[dict[str, Callable[[Decimal, Decimal], Decimal]]] = {
    "Add": _EXACT.add,
    "Sub": _EXACT.subtract,
    "Mul": _EXACT.multiply,
    "Div": _EXACT.divide,
    "Mod": _EXACT.remainder,
}


def _fit(exact: Decimal) -> Decimal:
    """Round an exact value to the largest scale at which it fits."""
    exponent = exact.as_tuple().exponent
    digits = -exponent if isinstance(exponent, int) else 0
    for scale in range(max(0, min(_MOST_SCALE, digits)), -1, -1):
        try:
            rounded = exact.quantize(Decimal((0, (1,), -scale)), context=_EXACT)
        except InvalidOperation:
            continue
        if abs(int(rounded.scaleb(scale, _EXACT))) < _BOUND:
            return rounded or abs(rounded)
    raise VoxError(ErrorKind.DECIMAL_OVERFLOW, "a decimal of more than 96 bits")


Operation = Callable[[Machine, Value, Value], Value]

LEAST_INT: Final = -(2**63)
MOST_INT: Final = 2**63 - 1
_NUMBERS: Final = frozenset((int, float))
_SIGNS: Final = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}


def check_range(value: int) -> int:
    """Return an int if it fits into 64 bits, otherwise raise a `VoxError` (V1)."""
    if LEAST_INT <= value <= MOST_INT:
        return value
    raise VoxError(ErrorKind.INTEGER_OVERFLOW, "an integer of more than 64 bits")


def add(machine: Machine, left: Value, right: Value) -> Value:
    """Add numbers, or join a string with any value (O3)."""
    if type(left) is int and type(right) is int:
        return check_range(left + right)
    if type(left) is str or type(right) is str:
        text, more = format_value(machine, left), format_value(machine, right)
        machine.allocate(byte_length(text) + byte_length(more))
        return text + more
    return _compute_mixed("Add", left, right, operator.add)


def subtract(_machine: Machine, left: Value, right: Value) -> Value:
    if type(left) is int and type(right) is int:
        return check_range(left - right)
    return _compute_mixed("Sub", left, right, operator.sub)


def multiply(_machine: Machine, left: Value, right: Value) -> Value:
    if type(left) is int and type(right) is int:
        return check_range(left * right)
    return _compute_mixed("Mul", left, right, operator.mul)


def divide(_machine: Machine, left: Value, right: Value) -> Value:
    """Divide two numbers; truncate toward zero on ints."""
    if type(left) is int and type(right) is int:
        _refuse_zero(right)
        quotient = abs(left) // abs(right)
        return check_range(quotient if (left < 0) == (right < 0) else -quotient)
    return _compute_mixed("Div", left, right, _float_quotient)


def remainder(_machine: Machine, left: Value, right: Value) -> Value:
    """Compute the remainder, with the sign of the left operand."""
    if type(left) is int and type(right) is int:
        _refuse_zero(right)
        rest = abs(left) % abs(right)
        # The smallest int divided by -1 overflows, and so does its remainder.
        check_range(left // right)
        return -rest if left < 0 else rest
    return _compute_mixed("Mod", left, right, _float_remainder)


def _refuse_zero(divisor: int) -> None:
    if divisor == 0:
        raise VoxError(ErrorKind.DIVISION_BY_ZERO, "an integer is divided by 0")


def _compute_mixed(op: str, left: Value, right: Value, on_floats: Callable[[float, float], float]) -> Value:
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return on_floats(float(left), float(right))
    if type(left) is Decimal and type(right) is Decimal:
        return decimal_operation(op, left, right)
    raise type_error(f"`{_SIGNS[op]}` does not take {kind_name(left)} and {kind_name(right)}")


def _float_quotient(left: float, right: float) -> float:
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _float_remainder(left: float, right: float) -> float:
    return math.nan if right == 0 or math.isinf(left) else math.fmod(left, right)


def _ordering(sign: str, compare: Callable[[Value, Value], bool]) -> Operation:
    def run(_machine: Machine, left: Value, right: Value) -> bool:
        kind, other = type(left), type(right)
        if (kind in _NUMBERS and other in _NUMBERS) or (kind is other and (kind is str or kind is Decimal)):
            return compare(left, right)
        raise type_error(f"`{sign}` does not order {kind_name(left)} and {kind_name(right)}")

    return run


OPERATIONS: Final[dict[str, Operation]] = {
    "Add": add,
    "Sub": subtract,
    "Mul": multiply,
    "Div": divide,
    "Mod": remainder,
    "Lt": _ordering("<", operator.lt),
    "Gt": _ordering(">", operator.gt),
    "Lte": _ordering("<=", operator.le),
    "Gte": _ordering(">=", operator.ge),
    "Is": equal,
    "Isnt": lambda machine, a, b: not equal(machine, a, b),
}
"""Operator -> function; `and`, `or` and `|>` are missing, because they evaluate their operands themselves."""


def negate(value: Value) -> Value:
    """Negate a number."""
    if type(value) is int:
        return check_range(-value)
    if type(value) is float:
        return -value
    if type(value) is Decimal:
        return decimal_operation("Sub", Decimal(0), value)
    raise type_error(f"`-` does not take {kind_name(value)}")


def truth(value: Value, what: str) -> bool:
    """Return a condition if it is a bool, otherwise raise a `VoxError`: Vox has no truthiness (V13)."""
    if value is True or value is False:
        return bool(value)
    raise type_error(f"{what} takes a bool, found {kind_name(value)}")
