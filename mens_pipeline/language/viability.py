"""Decide whether a text can still become a program, and find its completion; this steers generation.

The parser is predictive and never backtracks, so it fails at the first token that no program can have there (the
valid-prefix property). A text can be continued unless its parse fails without looking at the end. Two things need care:
the last piece of a text may become another token (`i`, `if`, `iffy`; `=`, `=>`; `1`, `1.5`, `1dec`), and a few
decisions look ahead.
"""

import contextlib
import traceback
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from types import CodeType
from typing import Any, Final, NamedTuple

from mens_pipeline.language.ast.nodes import Statement
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.front_end import DEEP_STACK
from mens_pipeline.language.lexer import SENTINELS, TokenStream, tokenize
from mens_pipeline.language.lexer import Token as Piece
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

Token = tuple[TokenKind, str]
"""Kind and text."""
ParserPlace = tuple[tuple[CodeType, int], ...]
"""Active functions of the parser, outermost first, each with its current line."""


class _EndOfText(str):
    """Kind or text of the token after the last one, which records comparisons by the parser.

    `asked` is the value last compared with it; None if that was a look-up in a set or a table.
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


class ProbeParser(ModuleParser):
    """A parser that tracks its open blocks; it writes no messages, because they look at irrelevant tokens."""

    def __init__(self, tokens: list[Token], mode: Mode) -> None:
        self._end, self._end_text = _EndOfText("EOF"), _EndOfText("")
        kinds, texts = zip(*tokens, *[(self._end, self._end_text)] * SENTINELS, strict=True)
        # Each token has the length of one character: the parser does not depend on offsets.
        places = list(range(len(kinds)))
        super().__init__(TokenStream("", list(kinds), list(texts), places, places, ()), mode)
        self._end.is_seen = self._end_text.is_seen = False
        self._end.asked = None
        self.open_blocks: list[list[int]] = []
        """First tokens of the statements of each open block, outermost block first."""

    @property
    def has_seen_end(self) -> bool:
        """Whether the parser has looked at the end of the tokens."""
        return self._end.is_seen or self._end_text.is_seen

    @property
    def asked(self) -> str | None:
        """The kind that the parser last compared the end with; None if it looked for one of several."""
        return self._end.asked

    def block(self) -> tuple[Statement, ...]:
        """Parse `'{' Block` (G30), and track it as open."""
        self.open_blocks.append([])
        statements = super().block()
        self.open_blocks.pop()
        return statements

    def statement_of_block(self) -> Statement:
        """Parse `Stmt` directly in a block (G30), and record its first token."""
        self.open_blocks[-1].append(self.pos)
        return super().statement_of_block()

    def next_token_text(self) -> str:
        """Return an empty text, because there are no messages."""
        return ""

    def _warn_of_stray_word(self, word: str) -> None:
        """Do nothing, because warnings are for people."""


_DIGITS: Final = frozenset("0123456789")
_NOTHING: Final = TRIVIA | {"NL"}
DROPPED: Final = TRIVIA - {"SPACE", "COMMENT"}
"""Kinds of text that the lexer drops silently (L5, L7, L9, L10)."""
_LOOKAHEAD: Final = 4  # the longest lookahead of the parser, in tokens (G6)
WORDS: Final = CONTEXT_WORDS | KEYWORDS | {key for table in KEYED_DECORATORS.values() for key in table.values}
"""Words with a meaning for the parser."""


class Viability(Enum):
    """Verdict on a text as the beginning of a program."""

    DEAD = "dead"  # no continuation is a program
    OPEN = "open"  # some continuation is a program, the text is not
    COMPLETE = "complete"  # the text is a program


class _Parse(Enum):
    ACCEPTED = 0
    AT_END = 1  # it needs more tokens
    AFTER_LOOK = 2  # it fails before the end after a look at the end: more tokens may change that
    FAILED = 3


class _Look(NamedTuple):
    viability: Viability
    settled: list[slice]
    """Characters that need not be parsed again."""
    place: ParserPlace


class ViableText:
    """A text that grows piece by piece, with its viability.

    The cost of a piece does not grow with the text: earlier declarations are not parsed again, nor are statements of
    open blocks, except the first and the last ones. With `is_strict`, for generation, text that the lexer drops counts
    as dead: meaningless characters, unknown decorators, open strings, integers from 2^63 on (L5, L7, L9, L10).
    """

    def __init__(self, mode: Mode = Mode.SOURCE, *, is_strict: bool = False) -> None:
        self.mode = mode
        self.is_strict = is_strict
        self._text = ""
        self._is_settled = False
        self._looks: dict[str, _Look] = {}
        self.viability = self.would_be("")

    @property
    def has_tokens(self) -> bool:
        """Whether there is anything besides blanks, line ends and comments."""
        return self._is_settled or has_tokens(self._text)

    @property
    def unsettled(self) -> str:
        """The part of the text that is parsed again with the next piece."""
        return self._text

    def would_be(self, piece: str) -> Viability:
        """Return the viability of the text with a piece appended."""
        return self._look(piece).viability

    def place_behind(self, piece: str) -> ParserPlace:
        """Return the parser's place after the text and a piece; texts with the same place usually end alike."""
        return self._look(piece).place

    def append(self, piece: str) -> Viability:
        """Append a piece, and return the new viability."""
        self.viability, settled, _ = self._look(piece)
        self._looks = {}
        self._text += piece
        self._is_settled = self._is_settled or bool(settled)
        for part in reversed(settled):
            self._text = self._text[: part.start] + self._text[part.stop :]
        return self.viability

    def _look(self, piece: str) -> _Look:
        if piece not in self._looks:
            pieces = tokenize(self._text + piece)
            if self.is_strict and any(piece.kind in DROPPED for piece in pieces[:-1]):
                # Only at the end can an exclamation mark or a lone carriage return become another token.
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
        """Return whether complete tokens begin a program.

        `ending` is the outcome of their parse, if known; `depth` counts guessed tokens at their end.
        """
        ending = self._parse(tokens)[0] if ending is None else ending
        if ending is not _Parse.AFTER_LOOK:
            return ending is not _Parse.FAILED
        return depth < _LOOKAHEAD and any(self._leads_on([*tokens, token], None, depth + 1) for token in NEXT)

    def _parse(self, tokens: list[Token]) -> tuple[_Parse, list[slice], ParserPlace]:
        parser = ProbeParser(tokens, self.mode)
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
    """Return whether a text has anything besides blanks, line ends and comments."""
    return any(piece.kind not in _NOTHING for piece in tokenize(text))


def to_tokens(pieces: tuple[Piece, ...]) -> list[Token]:
    """Return the tokens that the parser sees."""
    return [(piece.kind, piece.text) for piece in pieces if piece.kind not in TRIVIA]  # type: ignore[misc]


def _find_settled(tokens: list[Token], items: list[int], blocks: list[list[int]]) -> Iterator[slice]:
    """Yield token ranges that can be cut out without changing the parse of the rest.

    The first statement of a block stays, because it distinguishes a block from an object (G37). A range begins after a
    statement that certainly ends with its line: an `if` may continue with `else` in the next (N8). `items` are the
    first tokens of top-level declarations and statements, `blocks` the first tokens of statements in each open block.
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
    """Return whether the statement before a token certainly ends with its line, not with a brace (N8)."""
    last = start - 1
    while tokens[last][0] == "NL":
        last -= 1
    return tokens[last][0] != "}"


def goes_on(piece: Piece) -> bool:
    """Return whether a piece at the end of a text may become another token."""
    return piece.kind not in {"STRING", "SSTRING", "SPACE", "NL", "DECIMAL"}


def _variants(pieces: tuple[Piece, ...], *, is_strict: bool) -> Iterator[list[Token]]:
    last = pieces[-1]
    before = to_tokens(pieces[:-1])
    for token in longer_tokens(last.text):
        yield [*before, token]
    if len(pieces) > 1 and (longer := _find_longer_number(pieces[-2].text, last.text)) is not None:
        yield [*to_tokens(pieces[:-2]), longer]
    if last.text == "/":
        yield [*before, ("NL", "\n")]
    if is_strict:
        return
    if last.kind == "DROPPED_STRING":
        yield [*before, ("NL", "\n")]  # a backslash before a line end ends the string, which is dropped (L7)
    elif last.kind in DROPPED or last.kind == "INT":
        yield before  # meaningless characters or a number that becomes too large: anything may follow


def longer_tokens(text: str) -> Iterator[Token]:
    """Yield the tokens that a text may become when it continues."""
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


def _find_longer_number(number: str, tail: str) -> Token | None:
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
"""One example of each token that may follow."""


_TEXT_OF: Final[dict[str, str]] = {
    **dict(zip(("IDENT", "TYPEIDENT", "INT", "FLOAT", "DECIMAL"), ("q", "Q", "1", "1.5", "1dec"), strict=True)),
    "STRING": '"a"',
    "SSTRING": "'a'",
}
_BLANKS: Final = (" ", "\n")
_CLOSERS: Final = (")", "]", "}")
_FILLERS: Final[tuple[str, ...]] = ("q", "0", '"a"', "Q", "{", "fn", "state")
"""Tried first if the parser accepts any of several tokens."""
_WORDS: Final = (*_CLOSERS, *_FILLERS, *(word for kind, word in NEXT if kind != "NL"))
_TOKENS: Final = {word: to_tokens(tokenize(word))[0] for word in _WORDS}  # word -> its token


def complete(text: str, mode: Mode = Mode.SOURCE, *, is_strict: bool = False, max_length: int = 2000) -> str | None:
    """Return a short continuation that makes a text a program, empty if it is one; `is_strict` as in `ViableText`.

    Return None for a dead text, for a text that needs more than `max_length` characters, and if no token may follow, as
    after a `1` that only more digits could complete, by making it too large (L5).
    """
    return DEEP_STACK.run(lambda: _write_completion(_Growing(mode, is_strict=is_strict), text, max_length))


def _write_completion(grown: "_Growing", text: str, max_length: int) -> str | None:
    state = grown.append(text)
    written = piece = ""
    while state is Viability.OPEN and len(written) <= max_length:
        found = next(_pieces(grown, piece.strip()), None)
        if found is None:
            return None
        piece = found
        written += piece
        state = grown.append(piece)
    return written if state is Viability.COMPLETE and len(written) <= max_length else None


class _Growing(ViableText):
    def alive(self, pieces: Iterable[str]) -> Iterator[str]:
        return (piece for piece in pieces if self.would_be(piece) is not Viability.DEAD)

    def next_words(self) -> Iterator[str]:
        tails = {blank: self._tail(blank) for blank in _BLANKS}
        for word, token in _TOKENS.items():
            for blank, tail in tails.items():
                if tail is not None and self._leads_on([*tail, token]):
                    yield f"{blank}{word} "

    def _tail(self, blank: str) -> list[Token] | None:
        """Return the last tokens, which suffice to judge the next one; None if no token may follow."""
        pieces = tokenize(self.unsettled + blank)
        is_dropped = self.is_strict and any(piece.kind in DROPPED for piece in pieces)
        if is_dropped or pieces[-1].kind == "COMMENT":  # the next text would be part of it
            return None
        tokens = to_tokens(pieces)
        parser = ProbeParser(tokens, self.mode)
        start = 0
        try:
            while not parser.has_seen_end:
                start = parser.pos
                parser.skip_newlines()
                parser.item()
        except ParseError:
            if not parser.has_seen_end:
                return None
        return tokens[start:]


def _pieces(text: _Growing, before: str) -> Iterator[str]:
    """Yield texts that may come next, the expected one first; an open string must end before anything else.

    If the parser expects the last piece, `before`, again, it has swallowed it, as in `@forall(`: closers come first.
    """
    pieces = tokenize(text.unsettled)
    last = pieces[-1].text if pieces and goes_on(pieces[-1]) else ""
    if last and last[0] in "\"'":
        return text.alive((last[0], "n" + last[0], "\\\n"))
    number = _find_longer_number(pieces[-2].text, last) if len(pieces) > 1 and last else None
    rest = () if number is None else (number[1][1 + len(last) :],)
    asked = _find_asked_token(to_tokens(pieces), text.mode)
    first = () if asked is None else (asked,)
    closers = _CLOSERS if asked is not None and asked == before else ()
    return chain(
        text.alive(("\n",) if last and pieces[-1].kind == "COMMENT" else ()),
        text.alive(f"{blank}{word} " for word in (*closers, *first) for blank in _BLANKS),
        text.next_words(),
        text.alive((*_longer(last), *rest, "/\n")),
    )


def _longer(last: str) -> Iterable[str]:
    if not last:
        return ()
    if last[0].isdecimal():
        return ".5", "dec"  # an integer from 2^63 on is dropped (L5), a longer number is not
    return (longer[len(last) :] for _, longer in longer_tokens(last))


def _find_asked_token(tokens: list[Token], mode: Mode) -> str | None:
    parser = ProbeParser(tokens, mode)
    with contextlib.suppress(ParseError):
        while parser.skip_newlines() != "EOF":
            parser.item()
    return None if parser.asked is None else _TEXT_OF.get(parser.asked, parser.asked)
