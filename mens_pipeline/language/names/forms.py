"""Syntax that declares or uses names (B1, B2, B5, B6, C6, K2)."""

from typing import Final

from mens_pipeline.language.ast.base import Node
from mens_pipeline.language.ast.expressions import (
    Binary,
    Block,
    Expr,
    FieldAccess,
    For,
    Ident,
    If,
    IndexAccess,
    Lambda,
    Match,
    ObjectLit,
    SelfClosingView,
    SideEffect,
    View,
)
from mens_pipeline.language.ast.patterns import ConstructorPattern, IdentPattern, Pattern, TuplePattern
from mens_pipeline.language.ast.statements import Assign, Break, Continue, Let, Loop, While
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.declarations import Binding, Kind
from mens_pipeline.language.names.findings import Place
from mens_pipeline.language.names.resolver import Forms, Resolver
from mens_pipeline.language.suggestions import did_you_mean
from mens_pipeline.language.vocabulary import VIEW_TAGS


def _ident(resolver: Resolver, node: Ident) -> None:
    binding = resolver.value_name(node.name, node)
    if binding is not None:
        resolver.resolution.uses[id(node)] = binding


def _binary(resolver: Resolver, node: Binary) -> None:
    """Resolve both sides; a long chain without recursion."""
    chain: list[Expr] = []
    left: Expr = node
    while isinstance(left, Binary):
        chain.append(left.right)
        left = left.left
    resolver.visit(left)
    for right in reversed(chain):
        resolver.visit(right)


def _field(resolver: Resolver, node: FieldAccess) -> None:
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


def _object(resolver: Resolver, node: ObjectLit) -> None:
    seen: set[str] = set()
    for entry in node.fields:
        if entry.key in seen:
            resolver.findings.add(Code.DUPLICATE_FIELD, entry, f"the field `{entry.key}` stands twice")
        seen.add(entry.key)
        resolver.visit(entry.value)


def _block(resolver: Resolver, node: Block | SideEffect) -> None:
    resolver.block(node.statements)


def _side_effect(resolver: Resolver, node: SideEffect) -> None:
    with resolver.scopes.block(in_loop=False):
        resolver.block(node.statements)


def _if(resolver: Resolver, node: If) -> None:
    resolver.visit(node.condition)
    resolver.block(node.then)
    if node.otherwise is not None:
        resolver.block(node.otherwise)


def _for(resolver: Resolver, node: For) -> None:
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


def _match(resolver: Resolver, node: Match) -> None:
    resolver.visit(node.subject)
    for arm in node.arms:
        with resolver.scopes.block():
            pattern(resolver, arm.pattern, Kind.PATTERN)
            resolver.visit(arm.body)


def _lambda(resolver: Resolver, node: Lambda) -> None:
    with resolver.scopes.block(in_loop=False):
        resolver.parameters(node.params)
        resolver.type(node.return_type)
        resolver.visit(node.body)


def _view(resolver: Resolver, node: View | SelfClosingView) -> None:
    binding = resolver.scopes.find(node.tag)
    if binding is None and node.tag not in VIEW_TAGS:
        binding = resolver.value_name(node.tag, Place(node.start, node.start + len(node.tag)))
    if binding is not None:
        resolver.resolution.uses[id(node)] = binding
    for attribute in node.attributes:
        resolver.visit(attribute.value)
    if isinstance(node, View):
        for child in node.children:
            resolver.visit(child)


def _let(resolver: Resolver, node: Let) -> None:
    resolver.type(node.type)
    resolver.visit(node.value)
    pattern(resolver, node.pattern, Kind.VARIABLE, mutable=node.mutable)


def pattern(resolver: Resolver, node: Pattern, kind: Kind, *, mutable: bool = False) -> None:
    """Declare the names of a pattern; a variant without payload is a test and no name (K2)."""
    if isinstance(node, IdentPattern):
        if resolver.names.is_variant(node.name):
            return
        if node.name[0].isupper() and kind is Kind.PATTERN and not resolver.may_be_foreign(node.name):
            _unknown_variant(resolver, node.name, node)
        resolver.declare(node, Binding(node.name, kind, node, mutable=mutable))
    elif isinstance(node, ConstructorPattern):
        is_known = resolver.names.is_variant(node.name) or node.name in resolver.names.assumed
        if not is_known and not resolver.names.is_open:
            _unknown_variant(resolver, node.name, Place(node.start, node.start + len(node.name)))
        for part in node.fields:
            pattern(resolver, part, kind, mutable=mutable)
    elif isinstance(node, TuplePattern):
        for part in node.elements:
            pattern(resolver, part, kind, mutable=mutable)


def _unknown_variant(resolver: Resolver, name: str, place: Node | Place) -> None:
    advice = did_you_mean(name, resolver.names.variants)
    resolver.findings.add(Code.UNKNOWN_VARIANT, place, f"no type has a variant `{name}`", advice)


def _assign(resolver: Resolver, node: Assign) -> None:
    is_compound = isinstance(node.value, Binary) and node.value.left is node.target
    resolver.visit(node.value)
    if not is_compound:
        resolver.visit(node.target)
    root = node.target
    while isinstance(root, FieldAccess | IndexAccess):
        root = root.object
    if not isinstance(root, Ident):
        message = "only names, their fields and their elements can be assigned to"
        resolver.findings.add(Code.NOT_MUTABLE, root, message)
        return
    binding = resolver.scopes.find(root.name)
    if binding is not None and not binding.mutable:
        advice = f"Write `let mut {root.name}`." if binding.kind is Kind.VARIABLE else None
        message = f"the {binding.kind} `{root.name}` cannot be assigned to"
        resolver.findings.add(Code.NOT_MUTABLE, root, message, advice)


def _while(resolver: Resolver, node: While) -> None:
    resolver.visit(node.condition)
    with resolver.scopes.block(in_loop=True):
        resolver.block(node.body)


def _loop(resolver: Resolver, node: Loop) -> None:
    with resolver.scopes.block(in_loop=True):
        resolver.block(node.body)


def _loop_control(resolver: Resolver, node: Break | Continue) -> None:
    if not resolver.scopes.in_loop:
        word = "break" if isinstance(node, Break) else "continue"
        resolver.findings.add(Code.OUTSIDE_LOOP, node, f"`{word}` stands in no loop of its function")


FORMS: Final[Forms] = {
    Ident: _ident,
    Binary: _binary,
    FieldAccess: _field,
    ObjectLit: _object,
    Block: _block,
    SideEffect: _side_effect,
    If: _if,
    For: _for,
    Match: _match,
    Lambda: _lambda,
    View: _view,
    SelfClosingView: _view,
    Let: _let,
    Assign: _assign,
    While: _while,
    Loop: _loop,
    Break: _loop_control,
    Continue: _loop_control,
}
"""Syntax that declares or uses names; of all other, the parts are gone through."""
