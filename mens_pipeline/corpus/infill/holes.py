"""Draw holes in a program: pieces that a person writes at once, cut along its syntax tree.

Holes along the tree teach more than holes at random places (AST-FIM, arXiv:2506.00204). A third of them start within a
token, as a cursor often does.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from mens_pipeline.corpus.schema.records import HoleKind
from mens_pipeline.language import Token, ast, tokenize

QUOTAS: Final[dict[HoleKind, float]] = {
    HoleKind.LINE: 0.46,
    HoleKind.EXPRESSION: 0.10,
    HoleKind.ARGUMENTS: 0.08,
    HoleKind.STATEMENT: 0.12,
    HoleKind.STATEMENTS: 0.07,
    HoleKind.BODY: 0.07,
    HoleKind.FIELD: 0.06,
    HoleKind.DECORATOR: 0.04,
}
"""Share of each kind in programs that have all kinds; the sum is 1."""

MAX_LINES: Final = 8
"""Lines of a hole; longer pieces are not completed at a cursor."""

_MOST_STATEMENTS: Final = 4
_FIELDS: Final = (
    ast.Field,
    ast.FormField,
    ast.MachineState,
    ast.ReactiveMember,
    ast.StateField,
    ast.Transition,
    ast.Variant,
)


@dataclass(frozen=True, slots=True, order=True)
class Hole:
    """A piece of a program, as a half-open range of characters."""

    start: int
    end: int
    kind: HoleKind


def draw_holes(source: str, module: ast.Module, number: int, random: Random) -> tuple[Hole, ...]:
    """Draw up to `number` holes of a program, with kinds weighted by `QUOTAS`, and return them in program order.

    Holes start at different characters, contain code, and do not end with white space.
    """
    tokens = tokenize(source)
    spans = _Spans(source, tokens)
    by_kind = {kind: spans.usable(find(source, module, tokens)) for kind, find in _FINDERS.items()}
    drawn: dict[int, Hole] = {}
    while len(drawn) < number and any(by_kind.values()):
        kinds = [kind for kind, found in by_kind.items() if found]
        (kind,) = random.choices(kinds, [QUOTAS[kind] for kind in kinds])
        start, end = by_kind[kind].pop(random.randrange(len(by_kind[kind])))
        if random.random() < 1 / 3:
            start = spans.within_token(start, end, random)
        drawn.setdefault(start, Hole(start, end, kind))
    return tuple(sorted(drawn.values()))


class _Spans:
    def __init__(self, source: str, tokens: tuple[Token, ...]) -> None:
        self._source = source
        self._at = {token.start: token for token in tokens}
        # Every editor closes brackets by itself.
        self._words = [token.start for token in tokens if not token.is_trivia and any(map(str.isalnum, token.text))]

    def usable(self, found: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return ranges of up to `MAX_LINES` lines that contain a word or number and do not start the program."""
        trimmed = {(start, start + len(self._source[start:end].rstrip())) for start, end in found}
        return sorted(
            (start, end)
            for start, end in trimmed
            if start > 0
            and bisect_left(self._words, start) < bisect_left(self._words, end)
            and self._source.count("\n", start, end) < MAX_LINES
        )

    def within_token(self, start: int, end: int, random: Random) -> int:
        """Return a place within the first token of a hole; its start if no letter or digit would be left."""
        token = self._at.get(start)
        length = 0 if token is None else min(token.end, end) - start
        place = start + random.randrange(1, length) if length > 1 else start
        return place if any(map(str.isalnum, self._source[place:end])) else start


def _lines(source: str, _module: ast.Module, tokens: tuple[Token, ...]) -> Iterator[tuple[int, int]]:
    begun: list[int] = []
    for token in tokens:
        if token.kind == "NL":
            yield from ((start, token.start) for start in begun)
            begun = []
        elif "\n" in token.text:
            begun = []
        elif not token.is_trivia:
            begun.append(token.start)
    yield from ((start, len(source)) for start in begun)


def _decorators(_source: str, module: ast.Module, tokens: tuple[Token, ...]) -> Iterator[tuple[int, int]]:
    yield from ((node.start, node.end) for node in ast.walk(module) if isinstance(node, ast.Decorator))
    line_end = {token.start: token.end for token in tokens if token.text.startswith("@")}
    yield from line_end.items()


def _build_finder(kinds: object) -> Callable[[str, ast.Module, tuple[Token, ...]], Iterator[tuple[int, int]]]:
    def find(_source: str, module: ast.Module, _tokens: tuple[Token, ...]) -> Iterator[tuple[int, int]]:
        return ((node.start, node.end) for node in ast.walk(module) if isinstance(node, kinds))  # type: ignore[arg-type]

    return find


def _arguments(_source: str, module: ast.Module, _tokens: tuple[Token, ...]) -> Iterator[tuple[int, int]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call | ast.MethodCall) and node.arguments:
            yield node.arguments[0].start, node.arguments[-1].end


def _statement_lists(module: ast.Module) -> Iterator[tuple[ast.Node, ...]]:
    for node in ast.walk(module):
        for name in ("body", "then", "otherwise", "statements"):
            found = getattr(node, name, None)
            if isinstance(found, tuple) and found:
                yield found


def _runs(_source: str, module: ast.Module, _tokens: tuple[Token, ...]) -> Iterator[tuple[int, int]]:
    for statements in _statement_lists(module):
        for first in range(len(statements)):
            for last in range(first + 1, min(first + _MOST_STATEMENTS, len(statements))):
                if last - first + 1 < len(statements):
                    yield statements[first].start, statements[last].end


_FINDERS: Final[dict[HoleKind, Callable[[str, ast.Module, tuple[Token, ...]], Iterator[tuple[int, int]]]]] = {
    HoleKind.LINE: _lines,
    HoleKind.EXPRESSION: _build_finder(ast.Expr),
    HoleKind.ARGUMENTS: _arguments,
    HoleKind.STATEMENT: _build_finder(ast.Statement),
    HoleKind.STATEMENTS: _runs,
    HoleKind.BODY: lambda _source, module, _tokens: (
        (statements[0].start, statements[-1].end) for statements in _statement_lists(module)
    ),
    HoleKind.FIELD: _build_finder(_FIELDS),
    HoleKind.DECORATOR: _decorators,
}
