"""`is`: equality of any two values (O5)."""

from decimal import Decimal

from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.values import UNIT, Value, Variant

_PLAIN = frozenset((int, float, bool, str, Decimal))
_LONG = 256
"""Characters above which comparing two strings costs steps."""


def equal(machine: Machine, left: Value, right: Value, level: int = 0) -> bool:
    """Return whether two values are the same; different kinds never are, functions equal nothing.

    `level` is how deep they lie in the values that are compared; the running test is charged for it.

    Raises:
        VoxError: The values are too deep, or the test has no steps left.
    """
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
    if kind is Variant:
        same = left.name == right.name and len(left.fields) == len(right.fields)
        return same and _all_equal(machine, left.fields, right.fields, level + 1)
    return left is UNIT


def _all_equal(
    machine: Machine, left: list[Value] | tuple[Value, ...], right: list[Value] | tuple[Value, ...], level: int
) -> bool:
    return all(equal(machine, a, b, level) for a, b in zip(left, right, strict=True))
