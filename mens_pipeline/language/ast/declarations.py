"""Declarations (A2): the class name of each is its kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mens_pipeline.language.ast.base import Node
from mens_pipeline.language.ast.functions import (
    Activity,
    Actor,
    BackButton,
    DeepLink,
    Endpoint,
    Forall,
    Form,
    Function,
    Loading,
    McpResource,
    McpTool,
    Push,
    Scheduled,
    Test,
    Tokens,
    Workflow,
)

if TYPE_CHECKING:
    from mens_pipeline.language.ast.base import Param, Type
    from mens_pipeline.language.ast.expressions import Expr, Statement


@dataclass(frozen=True, slots=True)
class ImportPath(Node):
    """One imported path; `root` is `symbol`, `react` or `rust` (G6)."""

    root: str
    segments: tuple[str, ...]
    alias: str | None
    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Import(Node):
    """`import a.b as c, d`."""

    paths: tuple[ImportPath, ...]


@dataclass(frozen=True, slots=True)
class Const(Node):
    """A module-level `let`."""

    name: str
    type: Type | None
    value: Expr


@dataclass(frozen=True, slots=True)
class Field(Node):
    """A named, typed field of a struct, table, variant or component property."""

    name: str
    type: Type
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Variant(Node):
    """One alternative of a sum type or url type."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class TypeDef(Node):
    """A struct (fields) or a sum type (variants)."""

    name: str
    is_pub: bool
    variants: tuple[Variant, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Table(Node):
    """`@table type`."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`@index Table.name on (columns)`."""

    table: str
    index: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Url(Node):
    """`url`."""

    name: str
    is_pub: bool
    variants: tuple[Variant, ...]


@dataclass(frozen=True, slots=True)
class StateField(Node):
    """A field of a state; its type may be left out."""

    name: str
    type: Type | None


@dataclass(frozen=True, slots=True)
class MachineState(Node):
    """One state of a state machine."""

    name: str
    fields: tuple[StateField, ...]
    is_terminal: bool


@dataclass(frozen=True, slots=True)
class Transition(Node):
    """One transition; `source` is None for `any`."""

    event: str
    params: tuple[str, ...]
    source: str | None
    target: str


@dataclass(frozen=True, slots=True)
class StateMachine(Node):
    """`state_machine`."""

    name: str
    is_pub: bool
    is_partial: bool
    states: tuple[MachineState, ...]
    transitions: tuple[Transition, ...]


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


Declaration = (
    Function | Import | Const | TypeDef | Table | Index | ReactiveComponent | ReactiveModule | Fragment | V0Component
    | Routes | Url | StateMachine | Workflow | Activity | Actor | Test | Forall | Scheduled | Endpoint | Loading
    | McpTool | McpResource | Form | BackButton | DeepLink | Push | Tokens
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Module(Node):
    """A whole text: its declarations in source order (A1)."""

    declarations: tuple[Declaration, ...]
