"""Patterns (A6)."""

from __future__ import annotations

from dataclasses import dataclass

from mens_pipeline.language.ast.base import Node


@dataclass(frozen=True, slots=True)
class WildcardPattern(Node):
    """`_`."""


@dataclass(frozen=True, slots=True)
class IdentPattern(Node):
    """A name to bind; also an upper-case name without parentheses."""

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
