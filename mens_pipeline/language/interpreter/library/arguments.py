"""Checks of what built-ins are given; a wrong kind is a `TypeError` (section 4)."""

from collections.abc import Callable
from typing import Final, TypeVar

from mens_pipeline.language.interpreter.values import Value, kind_name, type_error

_T = TypeVar("_T")


def _check(kind: type[_T], name: str) -> Callable[[Value, str], _T]:
    """Return a function that takes a value and what it is for, and returns the value, or raises a `VoxError`."""

    def checked(value: Value, what: str) -> _T:
        if type(value) is kind:
            found: _T = value
            return found
        raise type_error(f"{what} is {name}, found {kind_name(value)}")

    return checked


a_text: Final = _check(str, "a str")
an_int: Final = _check(int, "an int")
a_list: Final[Callable[[Value, str], list[Value]]] = _check(list, "a list")
a_record: Final[Callable[[Value, str], dict[str, Value]]] = _check(dict, "a record")
