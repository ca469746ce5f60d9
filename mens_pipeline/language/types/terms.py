"""Types as values, and whether one may stand where another is expected."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Named:
    """A type with a name: built in, declared, or generic; `List[int]` has one argument."""

    name: str
    arguments: "tuple[Type, ...]" = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """A type that each call of a generic function chooses."""

    name: str


@dataclass(frozen=True, slots=True)
class Callable:
    """The type of what can be called. `names` are those of the parameters, none where a call cannot name them."""

    parameters: "tuple[Type, ...]"
    result: "Type"
    fewest: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """The type of a record literal. `is_open` tells whether it may have other fields by now (B6)."""

    fields: "tuple[tuple[str, Type], ...]"
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Namespace:
    """`std` and what lies below it, by its path."""

    path: str


Type = Named | Variable | Callable | Record | Namespace

UNKNOWN: Final = Named("_")
"""Anything: whatever touches it is right."""
JSON: Final = Named("Json")
"""What was read from a JSON text: as good as unknown, but a value of the library."""
ELEMENT: Final = Named("Element")
"""What a view is; texts and lists of views may stand for one."""
NEVER: Final = Named("never")
"""Of what does not come back, such as `return` and `panic`, and of the elements of `[]` and the value in `None`."""
INT: Final = Named("int")
FLOAT: Final = Named("float")
DEC: Final = Named("dec")
STR: Final = Named("str")
BOOL: Final = Named("bool")
UNIT: Final = Named("Unit")
NUMBERS: Final = (INT, FLOAT)


_MOST_FIELDS: Final = 4
"""Of a record in a message."""


def list_of(element: Type) -> Named:
    """`List[element]`."""
    return Named("List", (element,))


def option_of(value: Type) -> Named:
    """`Option[value]`."""
    return Named("Option", (value,))


def result_of(value: Type) -> Named:
    """`Result[value]`."""
    return Named("Result", (value,))


def text_of(type_: Type) -> str:
    """Write a type as programs do."""
    if type_ == NEVER:
        return "_"
    if isinstance(type_, Named):
        return type_.name + (f"[{_texts(type_.arguments)}]" if type_.arguments else "")
    if isinstance(type_, Callable):
        return f"fn({_texts(type_.parameters)}) to {text_of(type_.result)}"
    if isinstance(type_, Record):
        shown = [f"{name}: {text_of(value)}" for name, value in type_.fields[:_MOST_FIELDS]]
        return "{ " + ", ".join(shown + ["..."] * (len(type_.fields) > _MOST_FIELDS)) + " }"
    return type_.name if isinstance(type_, Variable) else type_.path


def _texts(types: Iterable[Type]) -> str:
    return ", ".join(map(text_of, types))


def substitute(type_: Type, chosen: Mapping[str, Type]) -> Type:
    """Replace the variables of a type. What is not `chosen` is unknown."""
    if isinstance(type_, Variable):
        return chosen.get(type_.name, UNKNOWN)
    if isinstance(type_, Named) and type_.arguments:
        return Named(type_.name, tuple(substitute(argument, chosen) for argument in type_.arguments))
    if isinstance(type_, Callable):
        parameters = tuple(substitute(parameter, chosen) for parameter in type_.parameters)
        return Callable(parameters, substitute(type_.result, chosen), type_.fewest, type_.names)
    return type_


def settle(type_: Type) -> Type:
    """Return a type as it is kept: what an empty list or an absent value would hold is unknown from now on."""
    if type_ == NEVER:
        return UNKNOWN
    if isinstance(type_, Named) and type_.arguments:
        return Named(type_.name, tuple(map(settle, type_.arguments)))
    return type_


def choose(expected: Type, found: Type, chosen: dict[str, Type]) -> None:
    """Learn what the variables of a parameter stand for from an argument; the first that says something decides."""
    if isinstance(expected, Variable):
        if found not in (UNKNOWN, NEVER) and chosen.get(expected.name, UNKNOWN) == UNKNOWN:
            chosen[expected.name] = found
    elif isinstance(expected, Named) and isinstance(found, Named):
        for part, argument in zip(expected.arguments, found.arguments, strict=False):
            choose(part, argument, chosen)
    elif isinstance(expected, Callable) and isinstance(found, Callable):
        for part, parameter in zip(expected.parameters, found.parameters, strict=False):
            choose(part, parameter, chosen)
        choose(expected.result, found.result, chosen)
