"""Types and parameters (A3, A7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mens_pipeline.language.ast.base import Node

if TYPE_CHECKING:
    from mens_pipeline.language.ast.expressions import Expr


@dataclass(frozen=True, slots=True)
class NamedType(Node):
    """A name, or an integer where a type may stand (`Vec[float, 3]`)."""

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
    """`_`: left to inference."""


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
