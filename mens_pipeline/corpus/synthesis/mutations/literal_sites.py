"""Literals that may be changed without making the rest of a program untrue, each with words that name it."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.language.ast.base import Node, children, walk
from mens_pipeline.language.ast.behaviour import FormField
from mens_pipeline.language.ast.data import Const
from mens_pipeline.language.ast.expressions import (
    Attribute,
    Binary,
    BoolLit,
    FloatLit,
    IntLit,
    MethodCall,
    SelfClosingView,
    StringLit,
    View,
)
from mens_pipeline.language.ast.functions import Decorator, DecoratorArgument
from mens_pipeline.language.ast.patterns import IdentPattern
from mens_pipeline.language.ast.statements import Let
from mens_pipeline.language.ast.types import Param
from mens_pipeline.language.ast.ui import ReactiveMember

_LARGEST: Final = 1_000_000
_SPOKEN: Final = re.compile(r"[A-Z][a-z]{2,}|(?=\S+ \S)[A-Za-z][A-Za-z ,.:!?()-]*")
"""A text for people: a capitalised word, or several words."""

_LIMITS: Final = frozenset(("Lt", "Gt", "Lte", "Gte"))
_DIGITS: Final = re.compile(r"(?<![0-9])[0-9]++$")


@dataclass(frozen=True, slots=True)
class Site:
    """A literal and how to speak of it.

    Attributes:
        place: The number of the declaration it stands in.
        what: The words: ``the initial value of `left` ``; with `old` unsaid, for it may be part of them.
        old: The literal as written.
        start: Characters before it.
        is_named: Whether `what` says where it stands, not what it is.
    """

    place: int
    what: str
    old: str
    start: int
    is_named: bool


def sites_of(program: Program) -> list[Site]:
    """Return the literals of a program that a prompt can ask to change, in source order of the declarations.

    No test depends on the declarations they stand in, no comment or other text repeats them, and the words for each
    fit no other.
    """
    tested = program.tested
    found = [
        site
        for place, span in enumerate(program.spans)
        if place not in tested
        for node in walk(span.declaration)
        for site in _sites_below(program, node, place)
    ]
    told = Counter((site.place, site.what) for site in found)
    return [site for site in found if told[site.place, site.what] == 1 and _is_alone(program, site)]


def _is_alone(program: Program, site: Site) -> bool:
    """Return whether nothing else in the program says the same, so that it stays true when the literal is changed."""
    if site.old in {"true", "false"}:
        return True
    word = re.compile(rf"(?<![\w.]){re.escape(site.old.strip(chr(34)))}(?![\w])")
    span = program.spans[site.place]
    return not any(
        word.search(token.text)
        for token in program.tokens
        if token.start != site.start
        and (
            token.kind in {"STRING", "SSTRING", "COMMENT"}
            or (not site.is_named and span.start <= token.start < span.end)
        )
    )


def _sites_below(program: Program, node: Node, place: int) -> Iterator[Site]:
    """Yield the literals directly below a node."""
    if isinstance(node, View | SelfClosingView):
        for attribute in node.attributes:
            yield from _attribute_sites(program, node.tag, attribute, place)
    elif isinstance(node, Decorator):
        for argument in node.arguments:
            yield from _decorator_sites(program, node.name, argument, place)
    else:
        named = _name_below(node)
        for literal in children(node):
            yield from _literal_sites(program, literal, place, named)
    for limit in _limits_below(node):
        old = program.source[limit.start : limit.end]
        yield Site(place, f"the number `{old}`", old, limit.start, is_named=False)


def _name_below(node: Node) -> str | None:
    """Describe the literal below a node when it is the one value that the node gives to a name; else return None."""
    if isinstance(node, Let) and isinstance(node.pattern, IdentPattern):
        return f"the {'initial value' if node.mutable else 'value'} of `{node.pattern.name}`"
    if isinstance(node, ReactiveMember) and node.role == "state":
        return f"the initial value of the state `{node.name}`"
    if isinstance(node, Const):
        return f"the value of the constant `{node.name}`"
    if isinstance(node, Param):
        return f"the default of the parameter `{node.name}`"
    return f"the default of the form field `{node.name}`" if isinstance(node, FormField) else None


def _limits_below(node: Node) -> Iterator[IntLit | FloatLit]:
    """Yield the numbers directly below a node that limit something."""
    values: tuple[Node, ...] = ()
    if isinstance(node, Binary) and node.op in _LIMITS:
        values = node.left, node.right
    elif isinstance(node, MethodCall) and node.method == "limit":
        values = tuple(argument.value for argument in node.arguments)
    yield from (value for value in values if isinstance(value, IntLit | FloatLit) and 1 < value.value <= _LARGEST)


def _literal_sites(program: Program, node: Node, place: int, named: str | None) -> Iterator[Site]:
    old = program.source[node.start : node.end]
    if named is not None:
        if _is_changeable(node):
            yield Site(place, named, old, node.start, is_named=True)
    elif isinstance(node, StringLit) and _is_changeable(node):
        yield Site(place, f"the text {old}", old, node.start, is_named=False)


def _attribute_sites(program: Program, tag: str, attribute: Attribute, place: int) -> Iterator[Site]:
    value = attribute.value
    name = program.source[attribute.start : value.start].rstrip("= \n")
    if _is_changeable(value):
        old = program.source[value.start : value.end]
        yield Site(place, f"the attribute `{name}` of `{tag}`", old, value.start, is_named=True)


def _decorator_sites(program: Program, decorator: str, argument: DecoratorArgument, place: int) -> Iterator[Site]:
    digits = _DIGITS.search(program.source[argument.start : argument.end])
    if argument.key is not None and type(argument.value) is int and digits is not None:
        start = argument.start + digits.start()
        yield Site(place, f"`{argument.key}` of `{decorator}`", digits.group(), start, is_named=True)


def _is_changeable(node: Node) -> bool:
    """Return whether a node is a literal with an obvious neighbour: a moderate number, a bool, a text for people."""
    if isinstance(node, IntLit | FloatLit):
        return node.value <= _LARGEST
    if isinstance(node, StringLit):
        return _SPOKEN.fullmatch(node.value) is not None
    return isinstance(node, BoolLit)
