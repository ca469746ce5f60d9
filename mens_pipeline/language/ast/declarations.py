"""Declarations (A2-A4): the class name of each is its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mens_pipeline.language.ast.nodes import Node

if TYPE_CHECKING:
    from mens_pipeline.language.ast.nodes import Expr, Param, Statement, Type


ArgumentValue = str | int | float | bool | tuple[str, ...] | None
"""The value of a decorator key: a list keeps the texts of its tokens; None if the key has no value (G10)."""


class DecoratorArgument(Node):
    """One entry of a key list; `key` is None for an entry without a key."""

    key: str | None
    value: ArgumentValue


class Decorator(Node):
    """A function decorator: with a condition (G9), with keys (G10), or bare (G11)."""

    name: str
    arguments: tuple[DecoratorArgument, ...] = ()
    condition: Expr | None = None
    fallback: str | None = None


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


class Test(Node):
    """`@test`."""

    label: str
    function: Function


class Forall(Node):
    """`@forall`."""

    label: str
    function: Function


class Scheduled(Node):
    """`@scheduled`."""

    interval: str
    function: Function


class Endpoint(Node):
    """`@endpoint`; kind is query, mutation or server."""

    kind: str
    function: Function


class Loading(Node):
    """`@loading`."""

    function: Function


class McpTool(Node):
    """`@mcp.tool` or `@tool`."""

    description: str
    function: Function


class McpResource(Node):
    """`@mcp.resource` or `@resource`."""

    uri: str
    description: str
    function: Function


WRAPPERS = Test | Forall | Scheduled | Endpoint | Loading | McpTool | McpResource
"""Declarations that wrap a function (G12)."""


class Workflow(Node):
    """`workflow`, with or without `@distributed_train`."""

    name: str
    params: tuple[Param, ...]
    return_type: Type | None
    body: tuple[Statement, ...]
    strategy: str | None
    peers: int | None


class Activity(Node):
    """`activity`."""

    name: str
    params: tuple[Param, ...]
    return_type: Type | None
    body: tuple[Statement, ...]


class Handler(Node):
    """One `on` handler of an actor."""

    event: str
    params: tuple[Param, ...]
    return_type: Type | None
    body: tuple[Statement, ...]


class Actor(Node):
    """`actor`."""

    name: str
    handlers: tuple[Handler, ...]


class FormField(Node):
    """One field of a form; `constraints` are (word, text) pairs such as (`max_len`, `40`)."""

    name: str
    type: Type
    required: bool
    hidden: bool
    label: str | None
    default: Expr | None
    constraints: tuple[tuple[str, str], ...]


class Form(Node):
    """`@form`; if a clause is repeated, the last one counts."""

    name: str
    fields: tuple[FormField, ...]
    on_submit: str | None
    success_redirect: str | None
    error_message: str | None


class BackButton(Node):
    """`@back_button`."""

    entries: tuple[tuple[str, str], ...]


class DeepLink(Node):
    """`@deep_link`."""

    entries: tuple[tuple[str, str], ...]


class Push(Node):
    """`@push`."""

    entries: tuple[tuple[str, str], ...]


class DesignToken(Node):
    """One design token; a colour has two values, light and dark."""

    category: str
    name: str
    values: tuple[str, ...]


class Tokens(Node):
    """`@tokens`."""

    entries: tuple[DesignToken, ...]


class ImportPath(Node):
    """One imported path; `root` is `symbol`, `react` or `rust` (G6)."""

    root: str
    segments: tuple[str, ...]
    alias: str | None
    metadata: tuple[tuple[str, str], ...]


class Import(Node):
    """`import a.b as c, d`."""

    paths: tuple[ImportPath, ...]


class Const(Node):
    """A module-level `let`."""

    name: str
    type: Type | None
    value: Expr


class Field(Node):
    """A named, typed field of a struct, table, variant or component property."""

    name: str
    type: Type
    optional: bool = False


class Variant(Node):
    """One alternative of a sum type or url type."""

    name: str
    fields: tuple[Field, ...]


class TypeDef(Node):
    """A struct (fields) or a sum type (variants)."""

    name: str
    is_pub: bool
    variants: tuple[Variant, ...]
    fields: tuple[Field, ...]


class Table(Node):
    """`@table type`."""

    name: str
    fields: tuple[Field, ...]


class Index(Node):
    """`@index Table.name on (columns)`."""

    table: str
    index: str
    columns: tuple[str, ...]


class Url(Node):
    """`url`."""

    name: str
    is_pub: bool
    variants: tuple[Variant, ...]


class StateField(Node):
    """A field of a state, with an optional type."""

    name: str
    type: Type | None


class MachineState(Node):
    """One state of a state machine."""

    name: str
    fields: tuple[StateField, ...]
    is_terminal: bool


class Transition(Node):
    """One transition; `source` is None for `any`."""

    event: str
    params: tuple[str, ...]
    source: str | None
    target: str


class StateMachine(Node):
    """`state_machine`."""

    name: str
    is_pub: bool
    is_partial: bool
    states: tuple[MachineState, ...]
    transitions: tuple[Transition, ...]


class ReactiveMember(Node):
    """One reactive member; `role` is `state`, `derived`, `effect`, `mount`, `cleanup` or `statement`.

    `depends_on` is None for an effect without a dependency list.
    """

    role: str
    name: str | None
    type: Type | None
    depends_on: tuple[str, ...] | None
    body: Expr | Statement


class StyleRule(Node):
    """One rule of a style block."""

    selector: str
    properties: tuple[tuple[str, str], ...]
    is_raw_css: bool


class ReactiveComponent(Node):
    """`component`; `members` are in source order, without views; `view` is the last view."""

    name: str
    params: tuple[Param, ...]
    members: tuple[ReactiveMember, ...]
    view: Expr | None
    styles: tuple[StyleRule, ...]


class ReactiveModule(Node):
    """Consecutive members at module level of a `.vox.ui` file (M5)."""

    members: tuple[ReactiveMember, ...]


class Fragment(Node):
    """`fragment`."""

    name: str
    params: tuple[Param, ...]
    body: Expr


class V0Component(Node):
    """`@v0`; `id` is empty for the `from` form."""

    id: str
    image_path: str | None
    name: str
    props: tuple[Field, ...]


class Route(Node):
    """One route; `handlers` are (key, name) pairs, with the keys `loader`, `pending` and `error`."""

    path: str
    component: str
    handlers: tuple[tuple[str, str], ...]
    children: tuple[Route, ...]


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


class Module(Node):
    """A whole text: its declarations in source order (A1)."""

    declarations: tuple[Declaration, ...]
