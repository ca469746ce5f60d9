"""Syntax nodes: types and parameters (A3, A7), patterns (A6), expressions (A8) and statements (A5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass_transform(frozen_default=True)
class NodeType(type):
    """Metaclass that makes each node class a frozen dataclass with slots."""

    def __new__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> Any:
        """Return the class as a dataclass."""
        made = super().__new__(cls, name, bases, names)
        # `dataclass` creates the class again to add the slots, and calls this a second time.
        return made if "__slots__" in names else dataclass(frozen=True, slots=True)(made)


class Node(metaclass=NodeType):
    """A piece of syntax, a frozen dataclass; `source[start:end]` is its text, without trailing newlines.

    Trees can be thousands of levels deep: traverse them with `walk`. `==`, `hash` and `repr` recurse.
    """

    start: int
    end: int


def field_names(node: Node) -> tuple[str, ...]:
    """Return the names of the fields of a node, in order."""
    return node.__match_args__


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
    """Yield a node and its descendants, parents first, without recursion; the target of `x += e` comes twice (A5)."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))


class NamedType(Node):
    """A name, or an integer used as a type argument (`Vec[float, 3]`)."""

    name: str


class GenericType(Node):
    """A name with type arguments: `Map[str, int]`."""

    name: str
    arguments: tuple[Type, ...]


class FunctionType(Node):
    """`fn(int) to str`; no return type means Unit."""

    parameters: tuple[Type, ...]
    return_type: Type | None


class InferType(Node):
    """`_`."""


class DecimalType(Node):
    """`dec`."""


Type = NamedType | GenericType | FunctionType | InferType | DecimalType


class Param(Node):
    """A parameter of a function, component, handler or lambda."""

    name: str
    type: Type | None
    default: Expr | None


class WildcardPattern(Node):
    """`_`."""


class IdentPattern(Node):
    """A name to bind, or an upper-case name without parentheses."""

    name: str


class LiteralPattern(Node):
    """An integer or a double-quoted string."""

    value: int | str


class ConstructorPattern(Node):
    """A constructor with its field patterns: `Some(x)`."""

    name: str
    fields: tuple[Pattern, ...]


class TuplePattern(Node):
    """`(a, b)`."""

    elements: tuple[Pattern, ...]


Pattern = WildcardPattern | IdentPattern | LiteralPattern | ConstructorPattern | TuplePattern


class IntLit(Node):
    """An integer literal."""

    value: int


class FloatLit(Node):
    """A float literal; infinity if it is too large."""

    value: float


class DecimalLit(Node):
    """A decimal literal; `text` excludes the `dec`."""

    text: str


class StringLit(Node):
    """A string in either kind of quotes, with its escapes resolved (L6)."""

    value: str


class BoolLit(Node):
    """`true` or `false`."""

    value: bool


class Ident(Node):
    """A name."""

    name: str


class ObjectField(Node):
    """One `key: value` of an object literal."""

    key: str
    value: Expr


class ObjectLit(Node):
    """`{ a: 1 }`."""

    fields: tuple[ObjectField, ...]


class ListLit(Node):
    """`[a, b]`."""

    elements: tuple[Expr, ...]


class TupleLit(Node):
    """`(a, b)`; grouping parentheses have no node."""

    elements: tuple[Expr, ...]


class Binary(Node):
    """An infix operation; `op` is Add Sub Mul Div Mod Lt Gt Lte Gte And Or Is Isnt or Pipe."""

    op: str
    left: Expr
    right: Expr


class Unary(Node):
    """`not` (`op` is Not) or `-` (Neg)."""

    op: str
    operand: Expr


class Try(Node):
    """`operand?`."""

    operand: Expr


class With(Node):
    """`operand with options`."""

    operand: Expr
    options: Expr


class Argument(Node):
    """One call argument, named or not."""

    name: str | None
    value: Expr


class Call(Node):
    """`callee(arguments)`."""

    callee: Expr
    arguments: tuple[Argument, ...]


class MethodCall(Node):
    """`object.method(arguments)`."""

    object: Expr
    method: str
    arguments: tuple[Argument, ...]


class FieldAccess(Node):
    """`object.field`."""

    object: Expr
    field: str


class IndexAccess(Node):
    """`object[index]`."""

    object: Expr
    index: Expr


class MatchArm(Node):
    """`pattern => body`; a statement after the arrow becomes a Block."""

    pattern: Pattern
    body: Expr


class Match(Node):
    """`match subject { arms }`."""

    subject: Expr
    arms: tuple[MatchArm, ...]


class If(Node):
    """`if`; `otherwise` of an `else if` is one expression statement."""

    condition: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] | None


class For(Node):
    """`for binding, index in iterable key=key body`."""

    binding: str
    index: str | None
    iterable: Expr
    key: Expr | None
    body: Expr


class Lambda(Node):
    """`x => e`, `(a, b) => e` or `fn(a: int) to int e`."""

    params: tuple[Param, ...]
    return_type: Type | None
    body: Expr
    cancellable: bool


class Spawn(Node):
    """`spawn(target)`."""

    target: Expr


class Block(Node):
    """`{ statements }` as an expression."""

    statements: tuple[Statement, ...]


class SideEffect(Node):
    """`side_effect { statements }`."""

    statements: tuple[Statement, ...]


class WorkflowVersion(Node):
    """`workflow.version(id, minimum, maximum)`."""

    id: str
    minimum: int
    maximum: int


class Attribute(Node):
    """One attribute of a view, without a leading `attr_`."""

    name: str
    value: Expr


class View(Node):
    """A view call with children."""

    tag: str
    attributes: tuple[Attribute, ...]
    children: tuple[Expr, ...]


class SelfClosingView(Node):
    """A view call without children."""

    tag: str
    attributes: tuple[Attribute, ...]


Expr = (
    IntLit | FloatLit | DecimalLit | StringLit | BoolLit | Ident | ObjectLit | ListLit | TupleLit | Binary | Unary
    | Try | With | Call | MethodCall | FieldAccess | IndexAccess | Match | If | For | Lambda | Spawn | Block
    | SideEffect | WorkflowVersion | View | SelfClosingView
)  # fmt: skip


class Let(Node):
    """`let mut pattern: type = value`."""

    pattern: Pattern
    type: Type | None
    value: Expr
    mutable: bool


class Assign(Node):
    """`target = value`; `x += e` is kept as `x = x + e`."""

    target: Expr
    value: Expr


class Return(Node):
    """`return value`."""

    value: Expr | None


class While(Node):
    """`while condition { body }`."""

    condition: Expr
    body: tuple[Statement, ...]


class Loop(Node):
    """`loop { body }`."""

    body: tuple[Statement, ...]


class Break(Node):
    """`break`."""


class Continue(Node):
    """`continue`."""


class ExprStatement(Node):
    """An expression as a statement."""

    expression: Expr


Statement = Let | Assign | Return | While | Loop | Break | Continue | ExprStatement
