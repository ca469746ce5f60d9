"""Whether a value of one type may stand where another is expected."""

from mens_pipeline.language.types.declared import DeclaredTypes
from mens_pipeline.language.types.terms import (
    ELEMENT,
    FLOAT,
    INT,
    JSON,
    NEVER,
    NUMBERS,
    UNIT,
    UNKNOWN,
    Callable,
    Named,
    Namespace,
    Record,
    Type,
    Variable,
    option_of,
)

_LISTS = frozenset(("List", "Rows"))


def fits(expected: Type, found: Type, declared: DeclaredTypes) -> bool:
    """Return whether a value may stand at a place, as far as types can tell; what is unknown fits."""
    if expected == found or not is_definite(expected) or not is_definite(found):
        return True
    if expected == ELEMENT:
        return found != UNIT
    if isinstance(expected, Callable):
        return isinstance(found, Callable) and _calls_fit(expected, found, declared)
    if isinstance(expected, Record):
        return True
    if isinstance(found, Record):
        return _record_fits(expected, found, declared)
    if isinstance(expected, Named) and isinstance(found, Named):
        return _named_fit(expected, found, declared)
    return False


def _named_fit(expected: Named, found: Named, declared: DeclaredTypes) -> bool:
    if expected == FLOAT and found == INT:
        return True
    if found.name == "Rows" and expected.name == "Result" and expected.arguments:
        return fits(expected.arguments[0], found, declared)
    if found.name == "Found":
        return expected.name == "Result" or fits(expected, option_of(found.arguments[0]), declared)
    is_same = expected.name == found.name or (expected.name in _LISTS and found.name in _LISTS)
    return is_same and all(
        fits(part, argument, declared) for part, argument in zip(expected.arguments, found.arguments, strict=False)
    )


def _calls_fit(expected: Callable, found: Callable, declared: DeclaredTypes) -> bool:
    """Return whether it takes as many arguments as it will be given; its result may be dropped."""
    num_given = len(expected.parameters)
    if not found.fewest <= num_given <= len(found.parameters):
        return False
    parameters_fit = all(
        fits(parameter, given, declared)
        for given, parameter in zip(expected.parameters, found.parameters, strict=False)
    )
    return parameters_fit and (expected.result == UNIT or fits(expected.result, found.result, declared))


def _record_fits(expected: Type, found: Record, declared: DeclaredTypes) -> bool:
    if isinstance(expected, Named) and expected.name == "Map" and expected.arguments:
        return all(fits(expected.arguments[-1], type_, declared) for _name, type_ in found.fields)
    fields = declared.readable(expected)
    return fields is not None and all(
        name in fields and fits(fields[name], type_, declared) for name, type_ in found.fields
    )


def joined(left: Type, right: Type, declared: DeclaredTypes) -> Type:
    """Return the type of what is one or the other."""
    if right in (left, NEVER):
        return left
    if left == NEVER:
        return right
    if left in NUMBERS and right in NUMBERS:
        return FLOAT
    if not isinstance(left, Named) or not isinstance(right, Named):
        return UNKNOWN
    if left.name == right.name and len(left.arguments) == len(right.arguments):
        parts = zip(left.arguments, right.arguments, strict=True)
        return Named(left.name, tuple(joined(one, other, declared) for one, other in parts))
    return UNKNOWN


def is_definite(type_: Type) -> bool:
    """Return whether anything at all is known of a type."""
    return type_ not in (UNKNOWN, JSON, NEVER) and not isinstance(type_, Variable | Namespace)
