"""Imports, constants and data declarations (A2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mens_pipeline.language.ast.base import Node

if TYPE_CHECKING:
    from mens_pipeline.language.ast.expressions import Expr
    from mens_pipeline.language.ast.types import Type


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
