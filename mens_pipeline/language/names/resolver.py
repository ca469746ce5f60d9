"""Looking names up: each use finds its declaration, or is a finding (B1, B2, B5, B6, C6, K2)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mens_pipeline.errors import did_you_mean, near_miss
from mens_pipeline.language import ast
from mens_pipeline.language.ast.base import children
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.declarations import (
    GENERIC_TYPES,
    METHOD_NAMES,
    PLAIN_TYPES,
    Binding,
    Findings,
    Kind,
    ModuleNames,
    Place,
    Scopes,
)
from mens_pipeline.language.vocabulary import FOREIGN_WORDS, VIEW_TAGS


@dataclass(frozen=True, slots=True)
class Resolution:
    """Declarations of the names of a program, by the `id` of the syntax that uses them.

    Attributes:
        uses: Name or view -> its meaning.
        declared: Pattern, parameter, loop or decorator -> what it declares.
        indexes: Loop -> its second name.
    """

    uses: dict[int, Binding] = field(default_factory=dict)
    declared: dict[int, Binding] = field(default_factory=dict)
    indexes: dict[int, Binding] = field(default_factory=dict)


class Resolver:
    """A walk through bodies that knows at every place which names are visible."""

    def __init__(self, names: ModuleNames, findings: Findings) -> None:
        """Begin at the level of the module."""
        self.names = names
        self.findings = findings
        self.scopes = Scopes(names.values)
        self.resolution = Resolution()
        self._generics: frozenset[str] = frozenset()
        self.foreign_tables: set[str] = set()
        """Tables of a program that declares none: those of another file of its project."""
        self._unknown_types: list[tuple[str, Place]] = []

    def finish(self) -> None:
        """Report the types that are none; one that names a table of another file is left alone."""
        names = self.names
        known = (*names.types, *names.imported, *GENERIC_TYPES, *PLAIN_TYPES)
        for name, place in self._unknown_types:
            if name not in self.foreign_tables:
                self.findings.add(Code.UNKNOWN_TYPE, place, f"no type is called `{name}`", did_you_mean(name, known))

    def function(
        self,
        params: Sequence[ast.Param],
        return_type: ast.Type | None,
        body: Sequence[ast.Statement],
        generics: Iterable[str] = (),
    ) -> None:
        """Resolve a function; parameters are visible from the next default on (C3)."""
        self._generics = frozenset(generics)
        with self.scopes.block(in_loop=False):
            self.parameters(params)
            self.type(return_type)
            self.block(body)
        self._generics = frozenset()

    def parameters(self, params: Sequence[ast.Param]) -> None:
        """Declare parameters here."""
        seen: set[str] = set()
        for param in params:
            self.type(param.type)
            if param.default is not None:
                self.visit(param.default)
            if param.name in seen:
                self.findings.add(Code.DUPLICATE_DECLARATION, param, f"the parameter `{param.name}` stands twice")
            seen.add(param.name)
            self.declare(param, Binding(param.name, Kind.PARAMETER, param))

    def declare(self, node: ast.Node, binding: Binding) -> None:
        """Declare a local name."""
        self.resolution.declared[id(node)] = binding
        self.scopes.declare(binding)

    def block(self, statements: Sequence[ast.Statement]) -> None:
        """Resolve a block in a scope of its own."""
        with self.scopes.block():
            for statement in statements:
                self.visit(statement)

    def visit(self, node: ast.Node) -> None:
        """Resolve an expression or a statement; if it has no form of its own, its parts."""
        form = _FORMS.get(type(node))
        if form is not None:
            form(self, node)
            return
        for child in children(node):
            self.visit(child)

    def type(self, node: ast.Type | None) -> None:
        """Look up the names of a type."""
        if isinstance(node, ast.NamedType):
            self.type_name(node.name, node)
        elif isinstance(node, ast.GenericType):
            self.type_name(node.name, node, len(node.arguments))
            for argument in node.arguments:
                self.type(argument)
        elif isinstance(node, ast.FunctionType):
            for parameter in node.parameters:
                self.type(parameter)
            self.type(node.return_type)

    def type_name(self, name: str, place: ast.Node, num_arguments: int = 0) -> None:
        """Look up the name of a type. `num_arguments` types stand behind it in brackets."""
        names = self.names
        if name in self._generics or name in names.types or name in names.imported or name.isdigit():
            return
        if name in names.assumed and name not in GENERIC_TYPES:
            return
        expected = GENERIC_TYPES.get(name)
        if expected is not None and num_arguments > expected:
            message = f"`{name}` takes {expected} type{'s' * (expected > 1)} in brackets, found {num_arguments}"
            self.findings.add(Code.WRONG_ARGUMENT_COUNT, place, message)
        if name not in GENERIC_TYPES and name not in PLAIN_TYPES:
            self._unknown_types.append((name, Place(place.start, place.start + len(name))))

    def outside_name(self, name: str, holder: ast.Node, what: str, known: Iterable[str]) -> None:
        """Look up a name that may just as well belong to another file of a project."""
        if name in known or name in self.names.imported or name in self.names.assumed:
            return
        advice = near_miss(name, known)
        if advice is not None:
            message = f"no {what} `{name}` is known here"
            self.findings.add(Code.UNKNOWN_NAME, self.findings.name_in(holder, name), message, advice)

    def value_name(self, name: str, place: ast.Node | Place, what: str = "name") -> Binding | None:
        """Return what the name of a value means; None where it means nothing."""
        binding = self.scopes.find(name)
        if binding is None and not self.may_be_foreign(name):
            message = f"no {what} `{name}` is known here"
            self.findings.add(Code.UNKNOWN_NAME, place, message, self._advice(name))
        return binding

    def may_be_foreign(self, name: str) -> bool:
        """Return whether a name may be declared elsewhere: it is assumed, or may be a variant of a missing module."""
        return name in self.names.assumed or (self.names.is_open and name[0].isupper())

    def _advice(self, name: str) -> str | None:
        if name in FOREIGN_WORDS:
            return FOREIGN_WORDS[name]
        if name in self.names.types:
            return "It is a type: write a record as `{ field: value }`, a variant by its own name."
        if name in VIEW_TAGS and len(name) > 1:  # `a`, `b` and `p` are more often names of other things
            return f"A view takes what it shows in braces: `{name}() {{ ... }}`."
        if name in METHOD_NAMES:
            return f"`{name}` is a method: write `value.{name}(...)`."
        return did_you_mean(name, self.scopes.names())


def _ident(resolver: Resolver, node: ast.Ident) -> None:
    binding = resolver.value_name(node.name, node)
    if binding is not None:
        resolver.resolution.uses[id(node)] = binding


def _binary(resolver: Resolver, node: ast.Binary) -> None:
    """Resolve both sides; a long chain without recursion."""
    chain: list[ast.Expr] = []
    left: ast.Expr = node
    while isinstance(left, ast.Binary):
        chain.append(left.right)
        left = left.left
    resolver.visit(left)
    for right in reversed(chain):
        resolver.visit(right)


def _field(resolver: Resolver, node: ast.FieldAccess) -> None:
    resolver.visit(node.object)
    binding = resolver.resolution.uses.get(id(node.object))
    if binding is None or binding.name != "db" or binding.kind is not Kind.BUILT_IN:
        return
    if not resolver.names.tables:
        resolver.foreign_tables.add(node.field)
    elif node.field not in resolver.names.tables and not resolver.may_be_foreign(node.field):
        place = resolver.findings.member(node.object, node, node.field)
        advice = did_you_mean(node.field, resolver.names.tables)
        resolver.findings.add(Code.UNKNOWN_NAME, place, f"no table `{node.field}` is declared", advice)


def _object(resolver: Resolver, node: ast.ObjectLit) -> None:
    seen: set[str] = set()
    for entry in node.fields:
        if entry.key in seen:
            resolver.findings.add(Code.DUPLICATE_FIELD, entry, f"the field `{entry.key}` stands twice")
        seen.add(entry.key)
        resolver.visit(entry.value)


def _side_effect(resolver: Resolver, node: ast.SideEffect) -> None:
    with resolver.scopes.block(in_loop=False):
        resolver.block(node.statements)


def _if(resolver: Resolver, node: ast.If) -> None:
    resolver.visit(node.condition)
    resolver.block(node.then)
    if node.otherwise is not None:
        resolver.block(node.otherwise)


def _for(resolver: Resolver, node: ast.For) -> None:
    resolver.visit(node.iterable)
    with resolver.scopes.block(in_loop=True):
        resolver.declare(node, Binding(node.binding, Kind.LOOP, node))
        if node.index is not None:
            index = Binding(node.index, Kind.LOOP, node)
            resolver.resolution.indexes[id(node)] = index
            resolver.scopes.declare(index)
        if node.key is not None:
            resolver.visit(node.key)
        resolver.visit(node.body)


def _match(resolver: Resolver, node: ast.Match) -> None:
    resolver.visit(node.subject)
    for arm in node.arms:
        with resolver.scopes.block():
            pattern(resolver, arm.pattern, Kind.PATTERN)
            resolver.visit(arm.body)


def _lambda(resolver: Resolver, node: ast.Lambda) -> None:
    with resolver.scopes.block(in_loop=False):
        resolver.parameters(node.params)
        resolver.type(node.return_type)
        resolver.visit(node.body)


def _view(resolver: Resolver, node: ast.View | ast.SelfClosingView) -> None:
    binding = resolver.scopes.find(node.tag)
    if binding is None and node.tag not in VIEW_TAGS:
        binding = resolver.value_name(node.tag, Place(node.start, node.start + len(node.tag)))
    if binding is not None:
        resolver.resolution.uses[id(node)] = binding
    for attribute in node.attributes:
        resolver.visit(attribute.value)
    if isinstance(node, ast.View):
        for child in node.children:
            resolver.visit(child)


def _let(resolver: Resolver, node: ast.Let) -> None:
    resolver.type(node.type)
    resolver.visit(node.value)
    pattern(resolver, node.pattern, Kind.VARIABLE, mutable=node.mutable)


def pattern(resolver: Resolver, node: ast.Pattern, kind: Kind, *, mutable: bool = False) -> None:
    """Declare the names of a pattern; a variant without payload is a test and no name (K2)."""
    if isinstance(node, ast.IdentPattern):
        if resolver.names.is_variant(node.name):
            return
        if node.name[0].isupper() and kind is Kind.PATTERN and not resolver.may_be_foreign(node.name):
            _unknown_variant(resolver, node.name, node)
        resolver.declare(node, Binding(node.name, kind, node, mutable=mutable))
    elif isinstance(node, ast.ConstructorPattern):
        is_known = resolver.names.is_variant(node.name) or node.name in resolver.names.assumed
        if not is_known and not resolver.names.is_open:
            _unknown_variant(resolver, node.name, Place(node.start, node.start + len(node.name)))
        for part in node.fields:
            pattern(resolver, part, kind, mutable=mutable)
    elif isinstance(node, ast.TuplePattern):
        for part in node.elements:
            pattern(resolver, part, kind, mutable=mutable)


def _unknown_variant(resolver: Resolver, name: str, place: ast.Node | Place) -> None:
    advice = did_you_mean(name, resolver.names.variants)
    resolver.findings.add(Code.UNKNOWN_VARIANT, place, f"no type has a variant `{name}`", advice)


def _assign(resolver: Resolver, node: ast.Assign) -> None:
    is_compound = isinstance(node.value, ast.Binary) and node.value.left is node.target
    resolver.visit(node.value)
    if not is_compound:
        resolver.visit(node.target)
    root = node.target
    while isinstance(root, ast.FieldAccess | ast.IndexAccess):
        root = root.object
    if not isinstance(root, ast.Ident):
        message = "only names, their fields and their elements can be assigned to"
        resolver.findings.add(Code.NOT_MUTABLE, root, message)
        return
    binding = resolver.scopes.find(root.name)
    if binding is not None and not binding.mutable:
        advice = f"Write `let mut {root.name}`." if binding.kind is Kind.VARIABLE else None
        message = f"the {binding.kind} `{root.name}` cannot be assigned to"
        resolver.findings.add(Code.NOT_MUTABLE, root, message, advice)


def _while(resolver: Resolver, node: ast.While) -> None:
    resolver.visit(node.condition)
    with resolver.scopes.block(in_loop=True):
        resolver.block(node.body)


def _loop(resolver: Resolver, node: ast.Loop) -> None:
    with resolver.scopes.block(in_loop=True):
        resolver.block(node.body)


def _loop_control(resolver: Resolver, node: ast.Break | ast.Continue) -> None:
    if not resolver.scopes.in_loop:
        word = "break" if isinstance(node, ast.Break) else "continue"
        resolver.findings.add(Code.OUTSIDE_LOOP, node, f"`{word}` stands in no loop of its function")


_FORMS: Final[dict[type, Callable[[Resolver, Any], None]]] = {
    ast.Ident: _ident,
    ast.Binary: _binary,
    ast.FieldAccess: _field,
    ast.ObjectLit: _object,
    ast.Block: lambda resolver, node: resolver.block(node.statements),
    ast.SideEffect: _side_effect,
    ast.If: _if,
    ast.For: _for,
    ast.Match: _match,
    ast.Lambda: _lambda,
    ast.View: _view,
    ast.SelfClosingView: _view,
    ast.Let: _let,
    ast.Assign: _assign,
    ast.While: _while,
    ast.Loop: _loop,
    ast.Break: _loop_control,
    ast.Continue: _loop_control,
}
"""Syntax that declares or uses names; of all other, the parts are gone through."""
