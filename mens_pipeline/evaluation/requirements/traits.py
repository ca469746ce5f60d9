"""Features of a declaration: kinds of syntax, calls, views, operators, decorators."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args

from mens_pipeline.language.ast.base import Node, walk
from mens_pipeline.language.ast.declarations import Declaration
from mens_pipeline.language.ast.expressions import (
    Attribute,
    Binary,
    Call,
    Expr,
    FieldAccess,
    Ident,
    MethodCall,
    ObjectField,
    SelfClosingView,
    Unary,
    View,
)
from mens_pipeline.language.ast.functions import Decorator, Function
from mens_pipeline.language.ast.statements import Statement
from mens_pipeline.language.ast.ui import ReactiveMember
from mens_pipeline.language.suggestions import did_you_mean
from mens_pipeline.language.vocabulary import EFFECTS, FUNCTION_DECORATORS

KINDS: Final = frozenset(kind.__name__ for kind in (*get_args(Expr), *get_args(Statement)))
"""The kinds of expressions and statements, such as `Match` and `While`."""

_OPERATORS: Final = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Mod", "Lt", "Gt", "Lte", "Gte"),
        *("And", "Or", "Is", "Isnt", "Pipe", "Not", "Neg"),
    )
)

_PREFIXES: Final[Mapping[str, frozenset[str] | None]] = {
    "call": None,
    "view": None,
    "key": None,
    "attribute": None,
    "member": frozenset(("state", "derived", "effect", "mount", "cleanup")),
    "decorator": frozenset(FUNCTION_DECORATORS),
    "operator": _OPERATORS,
    "uses": EFFECTS,
}
"""What stands before the colon of a trait -> what may follow; None where any name may."""


def traits_of(declaration: Declaration) -> frozenset[str]:
    """Return everything that a requirement may say a declaration contains.

    Returns:
        Kinds such as `For`, and traits such as `call:len`, `call:db.Task.insert`, `view:button`, `key:retries` (of an
        object), `attribute:href`, `member:derived`, `decorator:@pure`, `operator:Mod`, `uses:net`. A view counts as a
        call too, since a call without positional arguments is read as one (G41).
    """
    return frozenset(trait for node in walk(declaration) for trait in _traits(node))


def trait_mistake(trait: str) -> str | None:
    """Return what is wrong with the wording of a trait; None when nothing is."""
    prefix, colon, word = trait.partition(":")
    if not colon:
        return None if trait in KINDS else _unknown(trait, "kind of expression or statement", KINDS)
    if prefix not in _PREFIXES:
        return _unknown(prefix, "prefix", _PREFIXES)
    known = _PREFIXES[prefix]
    if not word.strip():
        return f"found `{trait}`, expected a name after the colon"
    return None if known is None or word in known else _unknown(word, prefix, known)


def _unknown(found: str, what: str, known: Mapping[str, object] | frozenset[str]) -> str:
    advice = did_you_mean(found, known) or f"It is one of: {', '.join(sorted(known))}."
    return f"found `{found}`, expected a known {what}. {advice}"


def _traits(node: Node) -> Iterator[str]:
    kind = type(node).__name__
    if kind in KINDS:
        yield kind
    for type_, traits in _TRAITS:
        if isinstance(node, type_):
            yield from traits(node)


def _method_traits(call: MethodCall) -> tuple[str, ...]:
    path = _path(call.object)
    return (f"call:{call.method}", f"call:{path}.{call.method}") if path else (f"call:{call.method}",)


def _path(node: Node) -> str | None:
    """Return the dotted name of what a method is called on: `db.Task`; None for anything but names."""
    names: list[str] = []
    while isinstance(node, FieldAccess):
        names.append(node.field)
        node = node.object
    return ".".join([node.name, *reversed(names)]) if isinstance(node, Ident) else None


_TRAITS: Final[tuple[tuple[type | tuple[type, ...], Callable[[Any], tuple[str, ...]]], ...]] = (
    (Call, lambda n: (f"call:{n.callee.name}",) if isinstance(n.callee, Ident) else ()),
    (MethodCall, _method_traits),
    ((View, SelfClosingView), lambda n: (f"view:{n.tag}", f"call:{n.tag}")),
    (ObjectField, lambda n: (f"key:{n.key}",)),
    (Attribute, lambda n: (f"attribute:{n.name}",)),
    (ReactiveMember, lambda n: (f"member:{n.role}",)),
    (Decorator, lambda n: (f"decorator:{n.name}",)),
    ((Binary, Unary), lambda n: (f"operator:{n.op}",)),
    (Function, lambda n: tuple(f"uses:{effect}" for effect in n.effects)),
)
"""Kind of node -> what a requirement may call it, beside its kind."""
