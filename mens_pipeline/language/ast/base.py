"""The base of every syntax node, types and parameters (A3, A7), and patterns (A6)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mens_pipeline.language.ast.expressions import Expr


@dataclass(frozen=True, slots=True)
class Node:
    """A piece of syntax; `source[start:end]` is its text, without trailing newlines.

    Trees can be thousands of levels deep: traverse them with `walk`. `==`, `hash` and `repr` recurse.
    """

    start: int
    end: int


_NAMES: Final[dict[type[Node], tuple[str, ...]]] = {}
"""Class of node -> its field names; `dataclasses.fields` is too slow to call for every node."""


def field_names(node: Node) -> tuple[str, ...]:
    """Return the names of the fields of a node, in order."""
    names = _NAMES.get(type(node))
    if names is None:
        names = _NAMES[type(node)] = tuple(field.name for field in fields(node))
    return names


def children(node: Node) -> list[Node]:
    """Return the nodes directly below a node, in field order."""
    below: list[Node] = []
    for name in field_names(node):
        value = getattr(node, name)
        if isinstance(value, Node):
            below.append(value)
        elif type(value) is tuple:
            below.extend([item for item in value if isinstance(item, Node)])
    return below


def walk(root: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it, parents first, siblings in field order, without recursion.

    The target of a compound assignment comes twice, because `x += e` is kept as `x = x + e` (A5).
    """
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))


@dataclass(frozen=True, slots=True)
class NamedType(Node):
    """A name, or an integer used as a type argument (`Vec[float, 3]`)."""

    name: str


@dataclass(frozen=True, slots=True)
class GenericType(Node):
    """A name with type arguments: `Map[str, int]`."""

    name: str
    arguments: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class FunctionType(Node):
    """`fn(int) to str`; no return type means Unit."""

    parameters: tuple[Type, ...]
    return_type: Type | None


@dataclass(frozen=True, slots=True)
class InferType(Node):
    """`_`."""


@dataclass(frozen=True, slots=True)
class DecimalType(Node):
    """`dec`."""


Type = NamedType | GenericType | FunctionType | InferType | DecimalType


@dataclass(frozen=True, slots=True)
class Param(Node):
    """A parameter of a function, component, handler or lambda."""

    name: str
    type: Type | None
    default: Expr | None


@dataclass(frozen=True, slots=True)
class WildcardPattern(Node):
    """`_`."""


@dataclass(frozen=True, slots=True)
class IdentPattern(Node):
    """A name to bind, or an upper-case name without parentheses."""

    name: str


@dataclass(frozen=True, slots=True)
class LiteralPattern(Node):
    """An integer or a double-quoted string."""

    value: int | str


@dataclass(frozen=True, slots=True)
class ConstructorPattern(Node):
    """A constructor with its field patterns: `Some(x)`."""

    name: str
    fields: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class TuplePattern(Node):
    """`(a, b)`."""

    elements: tuple[Pattern, ...]


Pattern = WildcardPattern | IdentPattern | LiteralPattern | ConstructorPattern | TuplePattern
