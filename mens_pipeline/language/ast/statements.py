"""Statements (A5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mens_pipeline.language.ast.base import Node

if TYPE_CHECKING:
    from mens_pipeline.language.ast.expressions import Expr
    from mens_pipeline.language.ast.patterns import Pattern
    from mens_pipeline.language.ast.types import Type


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
    """`return value`."""

    value: Expr | None


@dataclass(frozen=True, slots=True)
class While(Node):
    """`while condition { body }`."""

    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Loop(Node):
    """`loop { body }`."""

    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Break(Node):
    """`break`."""


@dataclass(frozen=True, slots=True)
class Continue(Node):
    """`continue`."""


@dataclass(frozen=True, slots=True)
class ExprStatement(Node):
    """An expression on its own."""

    expression: Expr


Statement = Let | Assign | Return | While | Loop | Break | Continue | ExprStatement
