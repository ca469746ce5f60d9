"""Types as values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Nominal:
    """A type with a name: built in, declared, or generic such as `List[int]`."""

    name: str
    arguments: "tuple[Type, ...]" = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """A type that each call of a generic function chooses."""

    name: str


@dataclass(frozen=True, slots=True)
class Callable:
    """The type of a function; `names` is empty if calls cannot name its parameters."""

    parameters: "tuple[Type, ...]"
    result: "Type"
    fewest: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """The type of a record literal; `is_open` tells whether it may have gained fields (B6)."""

    fields: "tuple[tuple[str, Type], ...]"
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class NamespaceType:
    """`std` or a namespace below it, by its path."""

    path: str


Type = Nominal | Variable | Callable | Record | NamespaceType

UNKNOWN: Final = Nominal("_")
"""A type that fits everywhere."""
JSON: Final = Nominal("Json")
"""A value from a JSON text: unknown, but with methods of the library only."""
ELEMENT: Final = Nominal("Element")
"""A view; every value except Unit fits, such as a text or a list of views."""
NEVER: Final = Nominal("never")
"""The type of `return` and `panic`, of the elements of `[]`, and of the value in `None`."""
INT: Final = Nominal("int")
FLOAT: Final = Nominal("float")
DEC: Final = Nominal("dec")
STR: Final = Nominal("str")
BOOL: Final = Nominal("bool")
UNIT: Final = Nominal("Unit")
NUMBERS: Final = (INT, FLOAT)


_MOST_FIELDS: Final = 4  # fields of a record shown in a message


def format_type(type_: Type) -> str:
    if type_ == NEVER:
        return "_"
    if isinstance(type_, Nominal):
        return type_.name + (f"[{_texts(type_.arguments)}]" if type_.arguments else "")
    if isinstance(type_, Callable):
        return f"fn({_texts(type_.parameters)}) to {format_type(type_.result)}"
    if isinstance(type_, Record):
        shown = [f"{name}: {format_type(value)}" for name, value in type_.fields[:_MOST_FIELDS]]
        return "{ " + ", ".join(shown + ["..."] * (len(type_.fields) > _MOST_FIELDS)) + " }"
    return type_.name if isinstance(type_, Variable) else type_.path


def _texts(types: Iterable[Type]) -> str:
    return ", ".join(map(format_type, types))


def substitute(type_: Type, chosen: Mapping[str, Type]) -> Type:
    """Replace the variables of a type; those that are not `chosen` become unknown."""
    if isinstance(type_, Variable):
        return chosen.get(type_.name, UNKNOWN)
    if isinstance(type_, Nominal) and type_.arguments:
        return Nominal(type_.name, tuple(substitute(argument, chosen) for argument in type_.arguments))
    if isinstance(type_, Callable):
        parameters = tuple(substitute(parameter, chosen) for parameter in type_.parameters)
        return Callable(parameters, substitute(type_.result, chosen), type_.fewest, type_.names)
    return type_


def settle(type_: Type) -> Type:
    """Replace `NEVER`, as in the type of an empty list, with unknown."""
    if type_ == NEVER:
        return UNKNOWN
    if isinstance(type_, Nominal) and type_.arguments:
        return Nominal(type_.name, tuple(map(settle, type_.arguments)))
    return type_


def choose(expected: Type, found: Type, chosen: dict[str, Type]) -> None:
    """Infer the variables of a parameter from an argument; the first known type counts."""
    if isinstance(expected, Variable):
        if found not in (UNKNOWN, NEVER) and chosen.get(expected.name, UNKNOWN) == UNKNOWN:
            chosen[expected.name] = found
    elif isinstance(expected, Nominal) and isinstance(found, Nominal):
        for part, argument in zip(expected.arguments, found.arguments, strict=False):
            choose(part, argument, chosen)
    elif isinstance(expected, Callable) and isinstance(found, Callable):
        for part, parameter in zip(expected.parameters, found.parameters, strict=False):
            choose(part, parameter, chosen)
        choose(expected.result, found.result, chosen)
