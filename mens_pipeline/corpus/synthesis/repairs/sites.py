"""Places where a program can be broken: its tokens with their neighbours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.language import Token
from mens_pipeline.language.ast.base import Node, walk

_T = TypeVar("_T")
_N = TypeVar("_N", bound=Node)

Breakage = Callable[[Program, Random], Edit | tuple[Edit, ...] | None]
"""Gives the edits that break a program in one way, or None when it has no place for it.

The edits need not break it: the front end has the last word.
"""


@dataclass(frozen=True, slots=True)
class Site:
    """A token between its neighbours, newlines being tokens and blanks and comments none.

    At the start and the end of the text, it is its own neighbour.
    """

    before: Token
    token: Token
    after: Token


def sites(program: Program) -> list[Site]:
    """Return every token that the parser sees, with its neighbours."""
    tokens = program.significant
    return [
        Site(before, token, after)
        for before, token, after in zip((tokens[0], *tokens), tokens, (*tokens[1:], tokens[-1]), strict=False)
    ]


def pick(places: Sequence[_T], random: Random) -> _T | None:
    """Return one of several places; None when there are none."""
    return random.choice(places) if places else None


def nodes(program: Program, kind: type[_N]) -> list[_N]:
    """Return every node of a kind."""
    return [node for node in walk(program.module) if isinstance(node, kind)]


def indent_at(program: Program, offset: int) -> str:
    """Return the blanks at the beginning of a line."""
    line = program.source[program.source.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip())]


def swapping(wanted: Callable[[Site], bool], *texts: str) -> Breakage:
    """Return a breakage that replaces one token."""

    def breakage(program: Program, random: Random) -> Edit | None:
        site = pick([site for site in sites(program) if wanted(site)], random)
        return Edit(site.token.start, site.token.end, random.choice(texts)) if site else None

    return breakage


def is_any(*kinds: str) -> Callable[[Site], bool]:
    """Return a test for tokens of these kinds."""
    return lambda site: site.token.kind in kinds
