"""Syntax nodes: types and parameters (A3, A7), patterns (A6), expressions (A8) and statements (A5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Node:
    """A piece of syntax; `source[start:end]` is its text, without trailing newlines.

    Trees can be thousands of levels deep: traverse them with `walk`. `==`, `hash` and `repr` recurse.
    """

    start: int
    end: int


def field_names(node: Node) -> tuple[str, ...]:
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


@dataclass(frozen=True, slots=True)
class IntLit(Node):
    value: int


@dataclass(frozen=True, slots=True)
class FloatLit(Node):
    """A float literal; infinity if it is too large."""

    value: float


@dataclass(frozen=True, slots=True)
class DecimalLit(Node):
    """A decimal literal; `text` excludes the `dec`."""

    text: str


@dataclass(frozen=True, slots=True)
class StringLit(Node):
    """A string in either kind of quotes, escapes resolved (L6)."""

    value: str


@dataclass(frozen=True, slots=True)
class BoolLit(Node):
    value: bool


@dataclass(frozen=True, slots=True)
class Ident(Node):
    name: str


@dataclass(frozen=True, slots=True)
class ObjectField(Node):
    """One `key: value` of an object literal."""

    key: str
    value: Expr


@dataclass(frozen=True, slots=True)
class ObjectLit(Node):
    """`{ a: 1 }`."""

    fields: tuple[ObjectField, ...]


@dataclass(frozen=True, slots=True)
class ListLit(Node):
    """`[a, b]`."""

    elements: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class TupleLit(Node):
    """`(a, b)`; grouping parentheses have no node."""

    elements: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """An infix operation; `op` is Add Sub Mul Div Mod Lt Gt Lte Gte And Or Is Isnt or Pipe."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """`not` (`op` is Not) or `-` (Neg)."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Try(Node):
    """`operand?`."""

    operand: Expr


@dataclass(frozen=True, slots=True)
class With(Node):
    """`operand with options`."""

    operand: Expr
    options: Expr


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """One call argument, named or not."""

    name: str | None
    value: Expr


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`callee(arguments)`."""

    callee: Expr
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class MethodCall(Node):
    """`object.method(arguments)`."""

    object: Expr
    method: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class FieldAccess(Node):
    """`object.field`."""

    object: Expr
    field: str


@dataclass(frozen=True, slots=True)
class IndexAccess(Node):
    """`object[index]`."""

    object: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class MatchArm(Node):
    """`pattern => body`; a statement after the arrow is a Block of one."""

    pattern: Pattern
    body: Expr


@dataclass(frozen=True, slots=True)
class Match(Node):
    """`match subject { arms }`."""

    subject: Expr
    arms: tuple[MatchArm, ...]


@dataclass(frozen=True, slots=True)
class If(Node):
    """`if`; an `else if` is an else list with one expression statement."""

    condition: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] | None


@dataclass(frozen=True, slots=True)
class For(Node):
    """`for binding, index in iterable key=key body`."""

    binding: str
    index: str | None
    iterable: Expr
    key: Expr | None
    body: Expr


@dataclass(frozen=True, slots=True)
class Lambda(Node):
    """`x => e`, `(a, b) => e` or `fn(a: int) to int e`."""

    params: tuple[Param, ...]
    return_type: Type | None
    body: Expr
    cancellable: bool


@dataclass(frozen=True, slots=True)
class Spawn(Node):
    target: Expr


@dataclass(frozen=True, slots=True)
class Block(Node):
    """`{ statements }` as an expression."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class SideEffect(Node):
    """`side_effect { statements }`."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class WorkflowVersion(Node):
    """`workflow.version(id, minimum, maximum)`."""

    id: str
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Attribute(Node):
    """One attribute of a view, without a leading `attr_`."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class View(Node):
    """A view call with children."""

    tag: str
    attributes: tuple[Attribute, ...]
    children: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class SelfClosingView(Node):
    """A view call without children."""

    tag: str
    attributes: tuple[Attribute, ...]


Expr = (
    IntLit | FloatLit | DecimalLit | StringLit | BoolLit | Ident | ObjectLit | ListLit | TupleLit | Binary | Unary
    | Try | With | Call | MethodCall | FieldAccess | IndexAccess | Match | If | For | Lambda | Spawn | Block
    | SideEffect | WorkflowVersion | View | SelfClosingView
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Let(Node):
    """`let mut pattern: type = value`."""

    pattern: Pattern
    type: Type | None
    value: Expr
    mutable: bool


@dataclass(frozen=True, slots=True)
class Assign(Node):
    """`target = value`; `x += e` is kept as `x = x + e`."""

    target: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Return(Node):
    value: Expr | None


@dataclass(frozen=True, slots=True)
class While(Node):
    """`while condition { body }`."""

    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Loop(Node):
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Break(Node):
    """`break`."""


@dataclass(frozen=True, slots=True)
class Continue(Node):
    """`continue`."""


@dataclass(frozen=True, slots=True)
class ExprStatement(Node):
    """An expression as a statement."""

    expression: Expr


Statement = Let | Assign | Return | While | Loop | Break | Continue | ExprStatement
