"""Random texts of a GBNF grammar, which check the export."""

import random
import re
from dataclasses import dataclass
from typing import Final

from mens_pipeline.language import Mode, analyze
from mens_pipeline.language.grammar.export import GrammarFormat, grammar_text

_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)+\]|[\w-]+(?: ::=)?|[()|*+?]|\{\d+,\d+\}|#.*')
_REPEATS: Final = {"*": (0, 4), "+": (1, 4), "?": (0, 1)}
_ANY: Final = (*map(chr, range(32, 127)), "\t", "\n", "\r", "\u00e9", "\u4e2d", "\U0001f600", "\u2028", "\x85")
"""Characters that a negated class draws from."""
_MORE: Final = 0.6
"""Probability of one more repetition."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives, each a sequence of parts."""

    branches: tuple[tuple["Part", ...], ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part, with its least and most repetitions."""

    part: "Part"
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A reference to a rule by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of these."""

    members: tuple[str, ...]


Part = str | Characters | Rule | Repeat | Choice


class Grammar:
    """A grammar that texts can be drawn from."""

    def __init__(self, gbnf: str) -> None:
        self.rules: dict[str, Choice] = {}
        pieces = [piece for piece in _PIECE.findall(gbnf) if piece[0] != "#"][::-1]
        while pieces:
            name = pieces.pop().removesuffix(" ::=")
            self.rules[name] = _choice(pieces)
        self._heights = dict.fromkeys(self.rules, 1000)
        self._known: dict[int, int] = {}
        self.seen: set[str] = set()  # rules that occur in some text
        self._drawn: set[int] = set()
        while any(self._lower(name) for name in self.rules):
            self._known.clear()

    def draw(self, rng: random.Random) -> str:
        """Return a text of random depth; branches that no earlier text took are preferred."""
        text: list[str] = []
        self._walk(Rule("root"), rng, rng.randint(8, 18), text)
        return "".join(text)

    def _lower(self, name: str) -> bool:
        before, self._heights[name] = self._heights[name], self._height(self.rules[name])
        return self._heights[name] < before

    def _height(self, part: Part) -> int:
        match part:
            case Rule(name):
                return 1 + self._heights[name]
            case Repeat(inner, least, _):
                return self._height(inner) if least else 0
            case Choice(branches):
                return min(map(self._tallest, branches))
            case _:
                return 0

    def _tallest(self, parts: tuple[Part, ...]) -> int:
        if id(parts) not in self._known:
            self._known[id(parts)] = max(map(self._height, parts), default=0)
        return self._known[id(parts)]

    def _walk(self, part: Part, rng: random.Random, budget: int, text: list[str]) -> None:
        match part:
            case str():
                text.append(part)
            case Characters(members):
                text.append(rng.choice(members))
            case Rule(name):
                self.seen.add(name)
                self._walk(self.rules[name], rng, budget - 1, text)
            case Repeat(inner, least, most):
                more = most - least if self._height(inner) < budget else 0
                while more and rng.random() < _MORE:
                    more, least = more - 1, least + 1
                for _ in range(least):
                    self._walk(inner, rng, budget, text)
            case Choice(branches):
                fitting = [parts for parts in branches if self._tallest(parts) < budget]
                new = [parts for parts in fitting if id(parts) not in self._drawn]
                chosen = rng.choice(new or fitting) if fitting else min(branches, key=self._tallest)
                self._drawn.add(id(chosen))
                for inner in chosen:
                    self._walk(inner, rng, budget, text)


def rejected_walks(seeds: range, *, is_ui: bool) -> tuple[list[str], set[str]]:
    """Return texts of the exported grammar that the front end rejects, and the rules that occur in no text."""
    grammar = Grammar(grammar_text(GrammarFormat.GBNF, is_ui=is_ui))
    mode = Mode.UI if is_ui else Mode.SOURCE
    texts = (grammar.draw(random.Random(seed)) for seed in seeds)  # noqa: S311 - reproducible, no secret
    rejected = [text for text in texts if not analyze(text, mode).ok]
    return rejected, set(grammar.rules) - grammar.seen


def _choice(pieces: list[str]) -> Choice:
    branches: list[list[Part]] = [[]]
    while pieces and not pieces[-1].endswith("::="):
        piece = pieces.pop()
        if piece == ")":
            break
        if piece == "|":
            branches.append([])
        elif piece in _REPEATS:
            branches[-1].append(Repeat(branches[-1].pop(), *_REPEATS[piece]))
        elif piece[0] == "{":
            branches[-1].append(Repeat(branches[-1].pop(), *map(int, piece[1:-1].split(","))))
        elif piece == "(":
            branches[-1].append(_choice(pieces))
        else:
            branches[-1].append(_leaf(piece))
    return Choice(tuple(map(tuple, branches)))


def _leaf(piece: str) -> Part:
    if piece[0] == '"':
        return piece[1:-1].encode().decode("unicode_escape")
    if piece[0] == "[":
        pattern = re.compile(piece)
        return Characters(tuple(filter(pattern.fullmatch, _ANY)))
    return Rule(piece)
