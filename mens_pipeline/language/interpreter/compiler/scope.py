"""Names visible while a function is compiled (B1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mens_pipeline.language import ast
from mens_pipeline.language.interpreter.results import VoxError
from mens_pipeline.language.interpreter.values import Value

if TYPE_CHECKING:
    from mens_pipeline.language.interpreter.machine import Machine
    from mens_pipeline.language.interpreter.results import Features, TextName

Frame = list[Value]
"""The locals of one running call, by slot."""

Code = Callable[[Frame], Value]
"""Compiled syntax, which runs on a frame."""


@dataclass(frozen=True, slots=True)
class Compilers:
    """Class of node -> its compiler; passed in, because the modules of the compiler depend on one another."""

    expressions: dict[type, Callable[[Any, Scope], Code]]
    statements: dict[type, Callable[[Any, Scope], Code]]


@dataclass(frozen=True, slots=True)
class ModuleScope:
    """State shared by all functions of one text; `variants` maps a variant to the number of its fields (K2)."""

    text: TextName
    machine: Machine
    names: dict[str, Value]
    variants: dict[str, int]
    features: Features
    forms: Compilers


@dataclass(frozen=True, slots=True)
class Local:
    """A local name; `has_rows` tells whether its value comes from a table (U5)."""

    slot: int
    mutable: bool
    has_rows: bool = False


@dataclass(slots=True)
class Layout:
    """The size of the frame of a function so far, and the steps of the stretch of code being compiled."""

    size: int = 0
    cost: int = 0


@dataclass(slots=True)
class Scope:
    """A block and its names; `in_loop` tells whether `break` and `continue` are allowed (B5)."""

    module: ModuleScope
    layout: Layout
    bindings: dict[str, Local]
    parent: Scope | None
    in_loop: bool

    @classmethod
    def outermost(cls, module: ModuleScope) -> Scope:
        return cls(module, Layout(), {}, None, in_loop=False)

    def child(self, *, in_loop: bool | None = None) -> Scope:
        """Return the scope of a block inside this one, by default with the same `in_loop`."""
        return Scope(self.module, self.layout, {}, self, self.in_loop if in_loop is None else in_loop)

    def inner_function(self) -> Scope:
        """Return the scope of a lambda here, whose frame begins with a copy of this frame (C6)."""
        return Scope(self.module, Layout(self.layout.size), {}, self, in_loop=False)

    def declare(self, name: str, *, mutable: bool) -> int:
        """Bind a name here, and return its slot; it may shadow any other (B2)."""
        slot = self.layout.size
        self.layout.size += 1
        self.bindings[name] = Local(slot, mutable)
        return slot

    def find(self, name: str) -> Local | None:
        scope: Scope | None = self
        while scope is not None:
            binding = scope.bindings.get(name)
            if binding is not None:
                return binding
            scope = scope.parent
        return None

    def gives_rows(self, node: ast.Expr) -> bool:
        """Return whether an expression is a call of a table of `db`, or a name for its result (U5)."""
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
        """Compile an expression, and count it as a step of its stretch (R1)."""
        self.layout.cost += 1
        return self.module.forms.expressions[type(node)](node, self)

    def codes(self, nodes: Sequence[ast.Expr]) -> list[Code]:
        return [self.code(node) for node in nodes]

    def statement(self, node: ast.Statement) -> Code:
        """Compile a statement, and count it as a step."""
        self.layout.cost += 1
        return self.module.forms.statements[type(node)](node, self)

    def stretch(self, node: ast.Expr) -> tuple[Code, int]:
        """Compile an expression that runs conditionally, such as a match arm; return its code and its steps."""
        outside = self.layout.cost
        self.layout.cost = 0
        code = self.code(node)
        cost = self.layout.cost
        self.layout.cost = outside
        return code, cost

    def add_place(self, error: VoxError, node: ast.Node) -> VoxError:
        """Return an error with the place of a node, unless it has a place already."""
        return error.at(self.module.text, node.start)

    def failing(self, error: VoxError, node: ast.Node, *before: Code) -> Code:
        """Compile a known mistake to code that runs `before`, and then ends the test."""
        reason, message = error.reason, error.message

        def run(frame: Frame) -> Value:
            for code in before:
                code(frame)
            raise self.add_place(VoxError(reason, message), node)

        return run
