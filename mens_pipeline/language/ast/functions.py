"""What runs: functions and what wraps them (A2-A4), workflows, actors, forms and other blocks (A2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mens_pipeline.language.ast.base import Node

if TYPE_CHECKING:
    from mens_pipeline.language.ast.base import Param, Type
    from mens_pipeline.language.ast.expressions import Expr, Statement


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


@dataclass(frozen=True, slots=True)
class Workflow(Node):
    """`workflow`, perhaps under `@distributed_train`."""

    name: str
    params: tuple[Param, ...]
    return_type: Type | None
    body: tuple[Statement, ...]
    strategy: str | None
    peers: int | None


@dataclass(frozen=True, slots=True)
class Activity(Node):
    """`activity`."""

    name: str
    params: tuple[Param, ...]
    return_type: Type | None
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Handler(Node):
    """One `on` handler of an actor."""

    event: str
    params: tuple[Param, ...]
    return_type: Type | None
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Actor(Node):
    """`actor`."""

    name: str
    handlers: tuple[Handler, ...]


@dataclass(frozen=True, slots=True)
class FormField(Node):
    """One field of a form; `constraints` are (word, text) pairs such as (`max_len`, `40`)."""

    name: str
    type: Type
    required: bool
    hidden: bool
    label: str | None
    default: Expr | None
    constraints: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Form(Node):
    """`@form`; the last of repeated clauses wins."""

    name: str
    fields: tuple[FormField, ...]
    on_submit: str | None
    success_redirect: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class BackButton(Node):
    """`@back_button`."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DeepLink(Node):
    """`@deep_link`."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Push(Node):
    """`@push`."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DesignToken(Node):
    """One design token: its category, name and texts (colour: light, dark)."""

    category: str
    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tokens(Node):
    """`@tokens`."""

    entries: tuple[DesignToken, ...]
