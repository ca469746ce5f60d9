"""Changing one literal: a default, a limit, a label."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.mutations.naming import synonyms_of
from mens_pipeline.corpus.synthesis.mutations.task import Change, capitalised, described, task_of
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.sample import Sample
from mens_pipeline.language import histogram
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


_NAMED_FRAMES: Final[tuple[str, ...]] = (
    "Change {what} in {where} from {old} to {new} in this Vox program:",
    "In the following Vox program, {what} in {where} should be {new} instead of {old}.",
    "Set {what} in {where} of this Vox program to {new}; it is {old} now.",
)
_CONSTANT_FRAMES: Final[tuple[str, ...]] = (
    "Change {what} from {old} to {new} in this Vox program:",
    "In the following Vox program, {what} should be {new} instead of {old}.",
)
_LITERAL_FRAMES: Final[tuple[str, ...]] = (
    "Change {what} in {where} of this Vox program to {new}:",
    "In {where} of the following Vox program, replace {what} by {new} and leave the rest alone.",
    "{what} in {where} of this Vox program should be {new}. Change it.",
)


def change_literal(program: Program, random: Random) -> Sample | None:
    """Make a task: a prompt to change one literal, and the program with the new one.

    Returns:
        The task; None when there is no literal that can be changed on its own.
    """
    sites = sites_of(program)
    if not sites:
        return None
    site = random.choice(sites)
    new = _other(site.old, random)
    span = program.spans[site.place]
    frames = _CONSTANT_FRAMES if span.construct.name == "const" else _NAMED_FRAMES
    frames = frames if site.is_named else _LITERAL_FRAMES
    request = random.choice(frames).format(
        what=site.what, where=described(span), old=_quoted(site.old), new=_quoted(new)
    )
    edits = (Edit(site.start, site.start + len(site.old), new),)
    constructs = histogram(program.module)
    return task_of(
        program,
        Change(
            "literals",
            span.construct.name,
            capitalised(request),
            edits,
            lambda after: histogram(after.module) == constructs,
        ),
    )


def _quoted(literal: str) -> str:
    return literal if literal.startswith(('"', "'")) else f"`{literal}`"


def _other(old: str, random: Random) -> str:
    """Return another literal of the same type, not far from the old one."""
    if old in {"true", "false"}:
        return "true" if old == "false" else "false"
    if old.startswith(('"', "'")):
        return f"{old[0]}{_other_text(old[1:-1], random)}{old[0]}"
    return _other_float(float(old), random) if "." in old else str(_other_int(int(old), random))


def _other_int(old: int, random: Random) -> int:
    if old < 10:  # noqa: PLR2004 - one digit
        return old + random.choice((1, 2, 3))
    if old % 10:
        return old + random.choice((-1, 1, 2, 5))
    return random.choice((old * 2, old + 10, old * 3 // 2))


def _other_float(old: float, random: Random) -> str:
    text = f"{random.choice((old * 2, old + 0.5, old + 1)) or 1.0:g}"
    return text if "." in text else f"{text}.0"


def _other_text(old: str, random: Random) -> str:
    """Replace one word of the text with a synonym, or make a small visible change where none is known."""
    words = old.split(" ")
    ideas = [
        " ".join((*words[:place], _like(word, synonym), *words[place + 1 :]))
        for place, word in enumerate(words)
        for synonym in synonyms_of(word.lower())
        if "_" not in synonym
    ]
    if not ideas:
        ideas = [old.upper(), f"Note: {old}"] if old[0].isupper() else [f"note: {old}", f"warning: {old}"]
    return random.choice(ideas)


def _like(word: str, synonym: str) -> str:
    return synonym.capitalize() if word[0].isupper() else synonym
