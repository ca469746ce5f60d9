"""Representation of Vox values in Python.

An int is an `int`, never a `bool`; float, bool and str are themselves; a decimal is a `Decimal`; a list is a `list`,
a tuple a `tuple`, a record a `dict`. Lists and dicts are never changed once they are a value: "mutation" is rebinding
(V6).
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.results import ErrorKind, Refusal

if TYPE_CHECKING:
    from mens_pipeline.language.interpreter.machine import Machine

Value = Any
"""Any of the above, or an object of one of the classes below."""


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """A value of a sum type, of Option or of Result (V9-V11); equality is that of the language, by `equal`."""

    name: str
    fields: tuple[Value, ...] = ()


class UnitValue:
    """The type of `Unit`, which has one value."""

    __slots__ = ()


UNIT: Final = UnitValue()
NONE: Final = Variant("None")
"""`None`, which `null` is another name for (V12)."""


def some(value: Value) -> Variant:
    """`Some(value)`."""
    return Variant("Some", (value,))


def ok(value: Value) -> Variant:
    """`Ok(value)`."""
    return Variant("Ok", (value,))


def error(message: Value) -> Variant:
    """`Error(message)`."""
    return Variant("Error", (message,))


def arity_error(name: str, expected: str, found: int) -> VoxError:
    """Return the error of a wrong number of arguments (C2)."""
    return VoxError(ErrorKind.ARITY_ERROR, f"`{name}` takes {expected} arguments and was given {found}")


@dataclass(frozen=True, slots=True, eq=False)
class Constructor:
    """A variant with payload, as a function (V9)."""

    name: str
    parameter_names: tuple[str, ...]

    def invoke(self, _machine: "Machine", arguments: list[Value]) -> Variant:
        """Make the variant.

        Raises:
            VoxError: Their number is wrong.
        """
        if len(arguments) != len(self.parameter_names):
            raise arity_error(self.name, str(len(self.parameter_names)), len(arguments))
        return Variant(self.name, tuple(arguments))


@dataclass(frozen=True, slots=True, eq=False)
class Native:
    """A built-in function or method.

    `name` is what programs write; `function` takes the machine, the receiver if it is a method, and the arguments;
    `fewest` and `most` arguments do not count the receiver.
    """

    name: str
    function: Callable[..., Value]
    fewest: int
    most: int

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Built-ins have none that a call could name (C4)."""
        return ()

    def check(self, found: int) -> None:
        """Compare the number of arguments.

        Raises:
            VoxError: It is wrong.
        """
        if not self.fewest <= found <= self.most:
            expected = str(self.fewest) if self.fewest == self.most else f"{self.fewest} to {self.most}"
            raise arity_error(self.name, expected, found)

    def invoke(self, machine: "Machine", arguments: list[Value]) -> Value:
        """Call it as a function.

        Raises:
            VoxError: Their number or kinds are wrong.
        """
        self.check(len(arguments))
        return self.function(machine, *arguments)


@dataclass(frozen=True, slots=True, eq=False)
class Namespace:
    """`std` and what lies below it; its path is how programs write it."""

    path: str
    members: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """A name whose meaning lies outside the sandbox (U1)."""

    reason: Refusal
    name: str

    def fault(self) -> VoxError:
        """Return the error that using the name raises (U3)."""
        return VoxError(self.reason, f"`{self.name}` needs {self.reason}, which the interpreter does not provide")


@dataclass(frozen=True, slots=True, eq=False)
class Actor:
    """An actor and its handlers; a handle on it, too, since actors have no state (U2)."""

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
    Actor: "actor",
}


def kind_name(value: Value) -> str:
    """Return the name of a value's kind, for messages."""
    if type(value) is Variant:
        return f"`{value.name}`"
    return _KINDS.get(type(value)) or type(value).__name__.lower()


def type_error(message: str) -> VoxError:
    """Return the error of an operand or argument of the wrong kind."""
    return VoxError(ErrorKind.TYPE_ERROR, message)
