"""Behaviour and block declarations (A2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mens_pipeline.language.ast.base import Node

if TYPE_CHECKING:
    from mens_pipeline.language.ast.expressions import Expr
    from mens_pipeline.language.ast.statements import Statement
    from mens_pipeline.language.ast.types import Param, Type


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
