"""User interface declarations (A2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mens_pipeline.language.ast.base import Node

if TYPE_CHECKING:
    from mens_pipeline.language.ast.data import Field
    from mens_pipeline.language.ast.expressions import Expr
    from mens_pipeline.language.ast.statements import Statement
    from mens_pipeline.language.ast.types import Param, Type


@dataclass(frozen=True, slots=True)
class ReactiveMember(Node):
    """One member by its role: `state`, `derived`, `effect`, `mount`, `cleanup`, or a bare `statement`.

    An effect without a dependency list has `depends_on` None.
    """

    role: str
    name: str | None
    type: Type | None
    depends_on: tuple[str, ...] | None
    body: Expr | Statement


@dataclass(frozen=True, slots=True)
class StyleRule(Node):
    """One rule of a style block."""

    selector: str
    properties: tuple[tuple[str, str], ...]
    is_raw_css: bool


@dataclass(frozen=True, slots=True)
class ReactiveComponent(Node):
    """`component`; members in order, without views; the last view wins."""

    name: str
    params: tuple[Param, ...]
    members: tuple[ReactiveMember, ...]
    view: Expr | None
    styles: tuple[StyleRule, ...]


@dataclass(frozen=True, slots=True)
class ReactiveModule(Node):
    """Consecutive members at module level of a `.vox.ui` file (M5)."""

    members: tuple[ReactiveMember, ...]


@dataclass(frozen=True, slots=True)
class Fragment(Node):
    """`fragment`."""

    name: str
    params: tuple[Param, ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class V0Component(Node):
    """`@v0`; `id` is empty for the `from` form."""

    id: str
    image_path: str | None
    name: str
    props: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Route(Node):
    """One route; `handlers` are its loader, pending and error names."""

    path: str
    component: str
    handlers: tuple[tuple[str, str], ...]
    children: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class Routes(Node):
    """`routes { }`."""

    entries: tuple[Route, ...]
    not_found: str | None
    error: str | None
