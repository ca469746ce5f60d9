"""Fixed-point decimals of 96 bits and at most 28 fractional digits (V3)."""

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Final

from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.results import ErrorKind

_MOST_SCALE: Final = 28
_BOUND: Final = 2**96
_EXACT: Final = Context(prec=120, rounding=ROUND_HALF_EVEN, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Room for every sum and product of two decimals; a quotient that is cut here cannot lie on a tie of 29 digits."""


def decimal_of(text: str) -> Decimal:
    """Return the value of a decimal literal: digits, perhaps with a point.

    Raises:
        VoxError: It has too many digits.
    """
    return _fit(Decimal(text))


def decimal_operation(op: str, left: Decimal, right: Decimal) -> Decimal:
    """`+ - * / %` on two decimals, rounded once.

    Raises:
        VoxError: The result does not fit, or the divisor is zero.
    """
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
