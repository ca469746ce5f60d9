"""Names known while a function is compiled (B1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mens_pipeline.language import ast
from mens_pipeline.language.interpreter.values import Value

if TYPE_CHECKING:
    from mens_pipeline.language.interpreter.machine import Machine
    from mens_pipeline.language.interpreter.results import Features, TextName, VoxError

Frame = list[Value]
"""The locals of one running call, each at its own place."""

Code = Callable[[Frame], Value]
"""Compiled syntax: run it on a frame."""


@dataclass(frozen=True, slots=True)
class Forms:
    """Compilers of each class of syntax; passed in, because the parts of the compiler need one another.

    Each maps a class of node to its compiler.
    """

    expressions: dict[type, Callable[[Any, Scope], Code]]
    statements: dict[type, Callable[[Any, Scope], Code]]


@dataclass(frozen=True, slots=True)
class ModuleScope:
    """State that all functions of one text share.

    The names of constants come and go with each test; `variants` maps a variant to the number of its fields, as
    patterns know them (K2).
    """

    text: TextName
    machine: Machine
    names: dict[str, Value]
    variants: dict[str, int]
    features: Features
    forms: Forms


@dataclass(frozen=True, slots=True)
class Binding:
    """A local name: its place in the frame, and whether it may be assigned to or stands for what a table gave (U5)."""

    slot: int
    mutable: bool
    has_rows: bool = False


@dataclass(slots=True)
class Layout:
    """The frame of a function as it grows, and the steps of the stretch of code that is being compiled."""

    size: int = 0
    cost: int = 0


@dataclass(slots=True)
class Scope:
    """A block: its names, those around it, and where it stands.

    `parent` is None for the outermost of a module-level function; `in_loop` tells whether `break` and `continue` have a
    loop to act on (B5).
    """

    module: ModuleScope
    layout: Layout
    bindings: dict[str, Binding]
    parent: Scope | None
    in_loop: bool

    @classmethod
    def outermost(cls, module: ModuleScope) -> Scope:
        """Return the scope of a module-level function."""
        return cls(module, Layout(), {}, None, in_loop=False)

    def child(self, *, in_loop: bool | None = None) -> Scope:
        """Return the scope of a block inside this one. By default it is in a loop where this one is."""
        return Scope(self.module, self.layout, {}, self, self.in_loop if in_loop is None else in_loop)

    def inner_function(self) -> Scope:
        """Return the scope of a lambda here: it sees these names, in a frame that begins with a copy of this (C6)."""
        return Scope(self.module, Layout(self.layout.size), {}, self, in_loop=False)

    def declare(self, name: str, *, mutable: bool) -> int:
        """Bind a name here, which may shadow anything, and return its place in the frame (B2)."""
        slot = self.layout.size
        self.layout.size += 1
        self.bindings[name] = Binding(slot, mutable)
        return slot

    def bind_parameter(self, name: str, slot: int) -> None:
        """Bind a parameter, whose place in the frame is given; it is immutable (B6)."""
        self.bindings[name] = Binding(slot, mutable=False)

    def find(self, name: str) -> Binding | None:
        """Return the nearest local of a name; None where there is none."""
        scope: Scope | None = self
        while scope is not None:
            binding = scope.bindings.get(name)
            if binding is not None:
                return binding
            scope = scope.parent
        return None

    def gives_rows(self, node: ast.Expr) -> bool:
        """Say whether an expression is a call of a table of `db`, or a name for what one gave (U5)."""
        if isinstance(node, ast.Try):
            return self.gives_rows(node.operand)
        if isinstance(node, ast.Ident):
            binding = self.find(node.name)
            return binding is not None and binding.has_rows
        if not isinstance(node, ast.MethodCall):
            return False
        table = node.object.object if isinstance(node.object, ast.FieldAccess) else None
        is_of_table = isinstance(table, ast.Ident) and table.name == "db"
        return is_of_table or (node.method == "all" and self.gives_rows(node.object))

    def code(self, node: ast.Expr) -> Code:
        """Compile an expression; it counts as a step of the stretch it stands in (R1)."""
        self.layout.cost += 1
        return self.module.forms.expressions[type(node)](node, self)

    def codes(self, nodes: Sequence[ast.Expr]) -> list[Code]:
        """Compile several expressions."""
        return [self.code(node) for node in nodes]

    def statement(self, node: ast.Statement) -> Code:
        """Compile a statement; it counts as a step."""
        self.layout.cost += 1
        return self.module.forms.statements[type(node)](node, self)

    def stretch(self, node: ast.Expr) -> tuple[Code, int]:
        """Compile an expression that runs or not by itself, such as a match arm.

        Returns:
            Its code, and the steps that its caller must charge.
        """
        outside = self.layout.cost
        self.layout.cost = 0
        code = self.code(node)
        cost = self.layout.cost
        self.layout.cost = outside
        return code, cost

    def add_place(self, error: VoxError, node: ast.Node) -> VoxError:
        """Return an error with the place of a node, unless it has one from further inside."""
        return error.at(self.module.text, node.start)
