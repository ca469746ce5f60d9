"""Functions and what wraps them (A2-A4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mens_pipeline.language.ast.base import Node

if TYPE_CHECKING:
    from mens_pipeline.language.ast.expressions import Expr
    from mens_pipeline.language.ast.statements import Statement
    from mens_pipeline.language.ast.types import Param, Type

ArgumentValue = str | int | float | bool | tuple[str, ...] | None
"""What a decorator key was given: a list keeps the texts of its tokens, None means nothing was taken (G10)."""


@dataclass(frozen=True, slots=True)
class DecoratorArgument(Node):
    """One entry of a key list; an entry that is no key has `key` None."""

    key: str | None
    value: ArgumentValue


@dataclass(frozen=True, slots=True)
class Decorator(Node):
    """A function decorator: with a condition (G9), with keys (G10), or bare (G11)."""

    name: str
    arguments: tuple[DecoratorArgument, ...] = ()
    condition: Expr | None = None
    fallback: str | None = None

    def argument(self, key: str) -> ArgumentValue:
        """Return the value of a key; the last one wins, None when it is absent (A4)."""
        return next((entry.value for entry in reversed(self.arguments) if entry.key == key), None)


@dataclass(frozen=True, slots=True)
class Function(Node):
    """A function: plain, `pub`, `async`, `extern`, or the synthetic `main` of a script (A3)."""

    name: str
    generics: tuple[str, ...]
    params: tuple[Param, ...]
    return_type: Type | None
    body: tuple[Statement, ...]
    effects: tuple[str, ...]
    decorators: tuple[Decorator, ...]
    is_async: bool = False
    is_pub: bool = False
    extern_module: str | None = None

    def conditions(self, decorator: str) -> tuple[Expr, ...]:
        """Return the expressions of a contract decorator, in order (A4)."""
        return tuple(d.condition for d in self.decorators if d.name == decorator and d.condition is not None)


@dataclass(frozen=True, slots=True)
class Test(Node):
    """`@test`."""

    label: str
    function: Function


@dataclass(frozen=True, slots=True)
class Forall(Node):
    """`@forall`."""

    label: str
    function: Function


@dataclass(frozen=True, slots=True)
class Scheduled(Node):
    """`@scheduled`."""

    interval: str
    function: Function


@dataclass(frozen=True, slots=True)
class Endpoint(Node):
    """`@endpoint`; kind is query, mutation or server."""

    kind: str
    function: Function


@dataclass(frozen=True, slots=True)
class Loading(Node):
    """`@loading`."""

    function: Function


@dataclass(frozen=True, slots=True)
class McpTool(Node):
    """`@mcp.tool` or `@tool`."""

    description: str
    function: Function


@dataclass(frozen=True, slots=True)
class McpResource(Node):
    """`@mcp.resource` or `@resource`."""

    uri: str
    description: str
    function: Function


WRAPPERS = Test | Forall | Scheduled | Endpoint | Loading | McpTool | McpResource
"""Declarations that are a function with something in front (G12)."""
