"""Render and use user interfaces in hidden tests (U6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mens_pipeline.language.interpreter.library.scalars import a_text, by_name
from mens_pipeline.language.interpreter.results import ErrorKind, VoxError
from mens_pipeline.language.interpreter.values import (
    NONE,
    UNIT,
    Native,
    UnitValue,
    Value,
    VariantValue,
    format_value,
    kind_name,
    some,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mens_pipeline.language.interpreter.machine import Machine


@dataclass(slots=True, eq=False)
class CellValue:
    """The value of a `state`, or the function that computes a `derived` at each read."""

    value: Value = None
    derive: Callable[[], Value] | None = None

    def read(self) -> Value:
        return self.value if self.derive is None else self.derive()


@dataclass(frozen=True, slots=True, eq=False)
class Element:
    """One view; `show` renders its content, which can change between calls."""

    tag: str
    attributes: dict[str, Value]
    show: Callable[[], list[Value]]


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """A component, a fragment or a v0 stub; `mount` takes the attributes of its view."""

    name: str
    mount: Callable[[dict[str, Value]], Element]


def _pieces(machine: Machine, values: list[Value], level: int = 0) -> Iterator[Value]:
    for value in values:
        machine.descend(level)
        if type(value) is list:
            yield from _pieces(machine, value, level + 1)
        elif type(value) is Element:
            yield value
            yield from _pieces(machine, value.show(), level + 1)
        elif value is not UNIT:
            yield value


def _find(machine: Machine, element: Element, tag: Value) -> list[Value]:
    wanted = a_text(tag, "the tag of a view")
    pieces = _pieces(machine, element.show())
    return [piece for piece in pieces if type(piece) is Element and piece.tag == wanted]


def _text(machine: Machine, element: Element) -> str:
    pieces = _pieces(machine, element.show())
    return " ".join(format_value(machine, piece) for piece in pieces if type(piece) is not Element)


def _attribute(_machine: Machine, element: Element, name: Value) -> VariantValue:
    key = a_text(name, "the name of an attribute")
    if key not in element.attributes:
        return NONE
    value = element.attributes[key]
    return some(value.read() if type(value) is CellValue else value)


def _press(machine: Machine, element: Element, *values: Value) -> UnitValue:
    handler = next((value for name, value in element.attributes.items() if name.startswith("on")), None)
    if handler is None or not hasattr(handler, "invoke"):
        raise VoxError(ErrorKind.MISSING_FIELD, f"{kind_name(element)} `{element.tag}` has nothing to do when used")
    handler.invoke(machine, [*values])
    return UNIT


def _enter(machine: Machine, element: Element, value: Value) -> UnitValue:
    cell = element.attributes.get("bind")
    if type(cell) is not CellValue:
        return _press(machine, element, value)
    cell.value = value
    return UNIT


VIEW_METHODS: Final[dict[str, Native]] = by_name(
    Native("find", _find, 1, 1),
    Native("text", _text, 0, 0),
    Native("tag", lambda _machine, element: element.tag, 0, 0),
    Native("attribute", _attribute, 1, 1),
    Native("press", _press, 0, 0),
    Native("enter", _enter, 1, 1),
)
