"""Whether a text can still become a program: what steers generation token by token.

The parser is predictive and never goes back, so it fails at the first token that no program has there (the valid-prefix
property). A text whose parse fails without having looked at the end of the text can therefore not be continued; one
whose parse fails at the end can. Two things need care: the last piece of a text may become another token when it goes
on (`i`, `if`, `iffy`; `=`, `=>`; `1`, `1.5`, `1dec`), and a few decisions look ahead.
"""

import traceback
from collections.abc import Iterator
from enum import Enum
from types import CodeType
from typing import Any, Final, NamedTuple

from mens_pipeline.language.ast.expressions import Statement
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.front_end import DEEP_STACK
from mens_pipeline.language.lexer import Token as Piece
from mens_pipeline.language.lexer import TokenStream, tokenize
from mens_pipeline.language.parser.cursor import ParseError
from mens_pipeline.language.parser.modules import Mode, ModuleParser
from mens_pipeline.language.vocabulary import (
    CONTEXT_WORDS,
    DECORATORS,
    KEYED_DECORATORS,
    KEYWORDS,
    SYMBOLS,
    TRIVIA,
    TokenKind,
)

_SENTINELS: Final = 4
"""EOF entries behind the tokens, as many as the lexer writes."""

Token = tuple[TokenKind, str]
"""Kind and text."""
ParserPlace = tuple[tuple[CodeType, int], ...]
"""Functions of the parser that wait for a token, outermost first, each with the line at which it waits."""


class _EndOfText(str):
    """Kind or text of the token behind the last one, which notes what the parser compares it with.

    Attributes:
        is_seen: Whether it was compared with anything.
        asked: What it was compared with last. None if that was one of several, in a set or a table.
    """

    __slots__ = ("asked", "is_seen")
    is_seen: bool
    asked: str | None

    def __eq__(self, other: object) -> bool:
        self.is_seen = True
        if other not in {"EOF", "NL"}:
            self.asked = str(other)
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        self.is_seen = True
        self.asked = None
        return str.__hash__(self)


class Probe(ModuleParser):
    """A parser that writes no messages, which would look at tokens that decided nothing, and knows its open blocks."""

    def __init__(self, tokens: list[Token], mode: Mode) -> None:
        """Begin before the first token.

        Args:
            tokens: What is read.
            mode: How it is read.
        """
        self._end, self._end_text = _EndOfText("EOF"), _EndOfText("")
        super().__init__(_stream_of(tokens, (self._end, self._end_text)), mode)
        self._end.is_seen = self._end_text.is_seen = False
        self._end.asked = None
        self.open_blocks: list[list[int]] = []
        """The tokens that the statements of each block begin with, outermost block first."""

    @property
    def has_seen_end(self) -> bool:
        """Whether anything was decided by there being no more tokens."""
        return self._end.is_seen or self._end_text.is_seen

    @property
    def asked(self) -> str | None:
        """The kind that the end was compared with last. None if that was one of several, in a set or a table."""
        return self._end.asked

    def block(self) -> tuple[Statement, ...]:
        """`'{' Block` (G30)."""
        self.open_blocks.append([])
        statements = super().block()
        self.open_blocks.pop()
        return statements

    def statement_of_block(self) -> Statement:
        """`Stmt` directly in a block (G30)."""
        self.open_blocks[-1].append(self.pos)
        return super().statement_of_block()

    def next_token_text(self) -> str:
        """Ignore it: the next token decides nothing here."""
        return ""

    def _warn_of_stray_word(self, word: str) -> None:
        """Ignore it: warnings are for people."""


def _stream_of(tokens: list[Token], end: tuple[str, str]) -> TokenStream:
    """Return columns for the parser; it decides nothing by places, so each token counts as one character."""
    places = list(range(len(tokens) + _SENTINELS))
    kinds, texts = zip(*tokens, *[end] * _SENTINELS, strict=True)
    return TokenStream("", list(kinds), list(texts), places, places, ())


_DIGITS: Final = frozenset("0123456789")
_NOTHING: Final = TRIVIA | {"NL"}
DROPPED: Final = TRIVIA - {"SPACE", "COMMENT"}
"""Kinds of text that the lexer drops without a diagnostic (L5, L7, L9, L10)."""
_LOOKAHEAD: Final = 4
"""Tokens that the parser looks ahead at most (G6)."""
WORDS: Final = CONTEXT_WORDS | KEYWORDS | {key for table in KEYED_DECORATORS.values() for key in table.values}
"""What a word may become that the parser takes for more than a name."""


class Viability(Enum):
    """Verdict on the beginning of a text."""

    DEAD = "dead"
    """No continuation is a program."""
    OPEN = "open"
    """It is no program, and some continuation is."""
    COMPLETE = "complete"
    """It is a program as it stands."""


class _Parse(Enum):
    """Outcome of the parse of some tokens."""

    ACCEPTED = 0
    AT_END = 1
    """It wants more tokens."""
    AFTER_LOOK = 2
    """It fails before the end, but had looked at the end: other tokens behind may have led elsewhere."""
    FAILED = 3


class _Look(NamedTuple):
    """Verdict on a text with a piece appended."""

    viability: Viability
    settled: list[slice]
    """Characters that need not be read again."""
    place: ParserPlace


class ViableText:
    """A text that grows piece by piece, and of which it is known after each whether it can become a program.

    The cost of a piece does not grow with the text: declarations before the last one are not read again, nor are, in a
    block that is open, the statements between the first and the last ones.
    """

    def __init__(self, mode: Mode = Mode.SOURCE, *, is_strict: bool = False) -> None:
        """Begin with the empty text.

        With `is_strict`, what the lexer drops without a word counts as dead: characters that mean nothing, unknown
        decorators, strings without an end, integers above 2^63 (L5, L7, L9, L10). That is for generation.
        """
        self.mode = mode
        self.is_strict = is_strict
        self._text = ""
        self._is_settled = False
        self._looks: dict[str, _Look] = {}
        self.viability = self.would_be("")

    @property
    def has_tokens(self) -> bool:
        """Whether there is anything beside blanks, line ends and comments."""
        return self._is_settled or has_tokens(self._text)

    @property
    def unsettled(self) -> str:
        """Return the part of the text that the next piece makes it parse again."""
        return self._text

    def would_be(self, piece: str) -> Viability:
        """Return the viability of the text with a piece appended."""
        return self._look(piece).viability

    def place_behind(self, piece: str) -> ParserPlace:
        """Return where the parser stands behind the text with a piece appended.

        Texts with the same place mostly end the same way, however they began.
        """
        return self._look(piece).place

    def append(self, piece: str) -> Viability:
        """Take a piece in, and return what the text is now."""
        self.viability, settled, _ = self._look(piece)
        self._looks = {}
        self._text += piece
        self._is_settled = self._is_settled or bool(settled)
        for part in reversed(settled):
            self._text = self._text[: part.start] + self._text[part.stop :]
        return self.viability

    def _look(self, piece: str) -> _Look:
        """Judge the text with a piece behind it, once until the next piece is appended."""
        if piece not in self._looks:
            pieces = tokenize(self._text + piece)
            if self.is_strict and any(piece.kind in DROPPED for piece in pieces[:-1]):
                # An exclamation mark or a lone carriage return goes on at the end alone.
                self._looks[piece] = _Look(Viability.DEAD, [], ())
            else:
                self._looks[piece] = DEEP_STACK.run(lambda: self._judge(pieces, to_tokens(pieces)))
        return self._looks[piece]

    def _judge(self, pieces: tuple[Piece, ...], tokens: list[Token]) -> _Look:
        ending, settled, place = self._parse(tokens)
        is_sound = not (self.is_strict and pieces and pieces[-1].kind in DROPPED)
        if ending is _Parse.ACCEPTED and is_sound:
            viability = Viability.COMPLETE
        else:
            viability = Viability.OPEN if self._is_open(pieces, tokens, ending) else Viability.DEAD
        if not settled or viability is Viability.DEAD:
            return _Look(viability, [], place)
        starts = [piece.start for piece in pieces if piece.kind not in TRIVIA]
        ranges = [slice(starts[part.start] if part.start else 0, starts[part.stop]) for part in settled]
        return _Look(viability, ranges, place)

    def _is_open(self, pieces: tuple[Piece, ...], tokens: list[Token], ending: _Parse) -> bool:
        """Return whether any continuation of a text that is no program is one."""
        last = pieces[-1] if pieces else None
        if last is None or not goes_on(last):
            return self._leads_on(tokens, ending)
        is_comment = last.kind == "COMMENT"
        if is_comment or last.kind not in DROPPED:
            more: list[Token] = [("NL", "\n")] if is_comment else []
            if self._leads_on([*tokens, *more], None if more else ending):
                return True
        return any(self._leads_on(variant) for variant in _variants(pieces, is_strict=self.is_strict))

    def _leads_on(self, tokens: list[Token], ending: _Parse | None = None, depth: int = 0) -> bool:
        """Return whether tokens that are what they are begin a program.

        `ending` is how their parse ends, where that is known; `depth` is how many of the last ones are tried.
        """
        ending = self._parse(tokens)[0] if ending is None else ending
        if ending is not _Parse.AFTER_LOOK:
            return ending is not _Parse.FAILED
        return depth < _LOOKAHEAD and any(self._leads_on([*tokens, token], None, depth + 1) for token in NEXT)

    def _parse(self, tokens: list[Token]) -> tuple[_Parse, list[slice], ParserPlace]:
        """Parse tokens; return how and where that ends, and the token ranges that need not be parsed again."""
        parser = Probe(tokens, self.mode)
        starts = []
        place: ParserPlace = ()
        try:
            while parser.skip_newlines() != "EOF":
                starts.append(parser.pos)
                parser.item()
        except ParseError as error:
            is_past = error.finding.code is Code.UNCLOSED_DELIMITER or error.finding.token >= len(tokens)
            ending = _Parse.AT_END if is_past else _Parse.AFTER_LOOK if parser.has_seen_end else _Parse.FAILED
            place = tuple((frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__))
        else:
            ending = _Parse.ACCEPTED
        return ending, list(_find_settled(tokens, starts, parser.open_blocks)), place


def has_tokens(text: str) -> bool:
    """Return whether there is anything beside blanks, line ends and comments in a text."""
    return any(piece.kind not in _NOTHING for piece in tokenize(text))


def to_tokens(pieces: tuple[Piece, ...]) -> list[Token]:
    """Return the tokens that the parser sees."""
    return [(piece.kind, piece.text) for piece in pieces if piece.kind not in TRIVIA]  # type: ignore[misc]


def _find_settled(tokens: list[Token], items: list[int], blocks: list[list[int]]) -> Iterator[slice]:
    """Find token ranges that can be cut out without changing how the rest is parsed.

    Of a block the first statement stays, by which a block is told from an object (G37). What is left out stands behind
    a line end, and that behind a statement that ends there: an `if` without `else` goes on in the next line (N8).

    `items` are the tokens that declarations begin with, or statements of a script; `blocks` those that statements begin
    with, of each open block.
    """
    certain = len(tokens) - _LOOKAHEAD
    if first := max((start for start in items if start < certain), default=0):
        yield slice(0, first)
    for starts in blocks:
        inner = [start for start in starts[1:] if first < start < certain and tokens[start - 1][0] == "NL"]
        after_line = next((start for start in inner if _ends_line(tokens, start)), None)
        if after_line is not None and after_line < inner[-1]:
            yield slice(after_line, inner[-1])


def _ends_line(tokens: list[Token], start: int) -> bool:
    """Check whether the statement before a token ends with its line, whatever follows: not with a brace (N8)."""
    last = start - 1
    while tokens[last][0] == "NL":
        last -= 1
    return tokens[last][0] != "}"


def goes_on(piece: Piece) -> bool:
    """Return whether a piece at the end of a text may become another one when the text goes on."""
    return piece.kind not in {"STRING", "SSTRING", "SPACE", "NL", "DECIMAL"}


def _variants(pieces: tuple[Piece, ...], *, is_strict: bool) -> Iterator[list[Token]]:
    """Yield the tokens of a text for each longer token that its last piece, or last two, may become."""
    last = pieces[-1]
    before = to_tokens(pieces[:-1])
    for token in longer_tokens(last.text):
        yield [*before, token]
    if len(pieces) > 1 and (longer := number_of(pieces[-2].text, last.text)) is not None:
        yield [*to_tokens(pieces[:-2]), longer]
    if last.text == "/":
        yield [*before, ("NL", "\n")]
    if is_strict:
        return
    if last.kind == "DROPPED_STRING":
        yield [*before, ("NL", "\n")]  # a backslash before a line end ends a string, which is dropped (L7)
    elif last.kind in DROPPED or last.kind == "INT":
        yield before  # characters that mean nothing, or a number that becomes too large, are followed by anything


def longer_tokens(text: str) -> Iterator[Token]:
    """Yield the tokens, other than the text itself, that it may be the beginning of."""
    first = text[0]
    if first in "\"'":
        yield ("STRING", '"a"') if first == '"' else ("SSTRING", "'a'")
    elif first in _DIGITS:
        yield from (("FLOAT", "1.5"), ("DECIMAL", "1dec"))
    elif first == "_" or (first.isascii() and first.isalpha()):
        yield ("TYPEIDENT", text + "q0") if first.isupper() else ("IDENT", text + "q0")
        yield from _longer_spellings(WORDS, text)
    elif first == "\r":
        yield ("NL", "\r\n")
    else:
        yield from _longer_spellings(SYMBOLS | DECORATORS, text)


def _longer_spellings(spellings: frozenset[Any], text: str) -> Iterator[Token]:
    for spelling in sorted(spellings):
        if spelling.startswith(text) and spelling != text:
            yield ("IDENT" if spelling not in KEYWORDS | SYMBOLS | DECORATORS else spelling), spelling


def number_of(number: str, tail: str) -> Token | None:
    """Return the token that a number and the piece behind it may begin: `1.` of `1.5`, `1de` of `1dec`; else None."""
    if set(number) <= _DIGITS and tail == ".":
        return "FLOAT", "1.5"
    if number[0] in _DIGITS and not number.endswith("dec") and tail in {"d", "de"}:
        return "DECIMAL", "1dec"
    return None


NEXT: Final[tuple[Token, ...]] = (
    *(("IDENT", word) for word in ("q0", *sorted(CONTEXT_WORDS))),
    *(("TYPEIDENT", "Q0"), ("STRING", '"a"'), ("SSTRING", "'a'"), ("INT", "1"), ("FLOAT", "1.5"), ("DECIMAL", "1dec")),
    ("NL", "\n"),
    *((spelling, spelling) for spelling in sorted(KEYWORDS | SYMBOLS | DECORATORS)),
)
"""One of each token that may follow."""
