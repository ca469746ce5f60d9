"""Whether a text can still become a program: what steers generation token by token.

The parser is predictive and never goes back, so it fails at the first token that no program has there (the valid-prefix
property). A text whose parse fails without having looked at the end of the text can therefore not be continued; one
whose parse fails at the end can. Two things need care: the last piece of a text may become another token when it goes
on (`i`, `if`, `iffy`; `=`, `=>`; `1`, `1.5`, `1dec`), and a few decisions look ahead.
"""

import contextlib
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, SupportsIndex

from mens_pipeline.language.ast.statements import Statement
from mens_pipeline.language.decorator_keys import KEYED_DECORATORS
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.front_end import DEEP_STACK
from mens_pipeline.language.lexer import Token as Piece
from mens_pipeline.language.lexer import TokenStream, tokenize
from mens_pipeline.language.parser.cursor import ParseError
from mens_pipeline.language.parser.modules import Mode, ModuleParser
from mens_pipeline.language.vocabulary import CONTEXT_WORDS, DECORATORS, KEYWORDS, SYMBOLS, TRIVIA, TokenKind

_DIGITS: Final = frozenset("0123456789")
_NOTHING: Final = TRIVIA | {"NL"}
SENTINELS: Final = 4
"""EOF entries behind the tokens, as many as the lexer writes."""
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


Token = tuple[TokenKind, str]
"""Kind and text."""


class Watched(list[Any]):
    """A column of tokens that notes when it is read at an edge or behind it."""

    is_touched = False

    def __init__(self, column: list[Any], edge: int) -> None:
        """Copy a column.

        What is read from `edge` on is noted.
        """
        super().__init__(column)
        self.edge = edge

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if not isinstance(index, slice) and index.__index__() >= self.edge:
            self.is_touched = True
        return super().__getitem__(index)


class Probe(ModuleParser):
    """A parser that writes no messages, which would look at tokens that decided nothing, and knows its open blocks."""

    def __init__(self, tokens: list[Token], mode: Mode) -> None:
        """Begin before the first token."""
        super().__init__(stream_of(tokens), mode)
        self.open_blocks: list[list[int]] = []
        """The tokens that the statements of each block begin with, outermost block first."""

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

    def found(self) -> str:
        """Ignore it: the next token decides nothing here."""
        return ""

    def _warn_of_stray_word(self, word: str) -> None:
        """Ignore it: warnings are for people."""


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
        self._last_look: tuple[str, tuple[Viability, list[slice]]] | None = None
        self.viability = self._look("")[0]

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
        return self._look(piece)[0]

    def append(self, piece: str) -> Viability:
        """Take a piece in, and return what the text is now."""
        looked_at = self._last_look
        self.viability, settled = looked_at[1] if looked_at and looked_at[0] == piece else self._look(piece)
        self._last_look = None
        self._text += piece
        self._is_settled = self._is_settled or bool(settled)
        for part in reversed(settled):
            self._text = self._text[: part.start] + self._text[part.stop :]
        return self.viability

    def _look(self, piece: str) -> tuple[Viability, list[slice]]:
        """Judge the text with a piece behind it; return the viability and the ranges that need not be read again."""
        pieces = tokenize(self._text + piece)
        tokens = kept(pieces)
        if self.is_strict and any(piece.kind.startswith("DROPPED") for piece in pieces[:-1]):
            # An exclamation mark or a lone carriage return is dropped unless it goes on, and it can only at the end.
            return Viability.DEAD, []
        is_sound = not (self.is_strict and pieces and pieces[-1].kind.startswith("DROPPED"))
        found = DEEP_STACK.run(lambda: self._judge(pieces, tokens, is_sound=is_sound))
        self._last_look = (piece, found)
        return found

    def _judge(
        self, pieces: tuple[Piece, ...], tokens: list[Token], *, is_sound: bool
    ) -> tuple[Viability, list[slice]]:
        ending, settled = self._parse(tokens)
        if ending is _Parse.ACCEPTED and is_sound:
            viability = Viability.COMPLETE
        else:
            viability = Viability.OPEN if self._is_open(pieces, tokens, ending) else Viability.DEAD
        if not settled or viability is Viability.DEAD:
            return viability, []
        starts = [piece.start for piece in pieces if piece.kind not in TRIVIA]
        return viability, [slice(starts[part.start] if part.start else 0, starts[part.stop]) for part in settled]

    def _is_open(self, pieces: tuple[Piece, ...], tokens: list[Token], ending: _Parse) -> bool:
        """Return whether any continuation of a text that is no program is one."""
        last = pieces[-1] if pieces else None
        if last is None or not goes_on(last):
            return self._leads_on(tokens, ending)
        is_comment = last.kind == "COMMENT"
        if is_comment or not last.kind.startswith("DROPPED"):
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

    def _parse(self, tokens: list[Token]) -> tuple[_Parse, list[slice]]:
        """Parse tokens; return how that ends, and the token ranges that need not be parsed again."""
        parser = Probe(tokens, self.mode)
        starts = []
        try:
            while parser.skip_newlines() != "EOF":
                starts.append(parser.pos)
                parser.item()
        except ParseError as error:
            ending = self._ending(tokens, starts, error)
        else:
            ending = _Parse.ACCEPTED
        return ending, list(_settled(tokens, starts, parser.open_blocks))

    def _ending(self, tokens: list[Token], starts: list[int], error: ParseError) -> _Parse:
        if error.finding.code is Code.UNCLOSED_DELIMITER or error.finding.token >= len(tokens):
            return _Parse.AT_END
        parser = Probe(tokens, self.mode)
        # What was read before may have ended here because of how far it could look ahead.
        parser.pos = starts[max(0, len(starts) - 2)]
        watched = parser.kinds, parser.texts = [Watched(c, len(tokens)) for c in (parser.kinds, parser.texts)]
        with contextlib.suppress(ParseError):
            while True:
                parser.skip_newlines()
                parser.item()
        return _Parse.AFTER_LOOK if any(column.is_touched for column in watched) else _Parse.FAILED


def has_tokens(text: str) -> bool:
    """Return whether there is anything beside blanks, line ends and comments in a text."""
    return any(piece.kind not in _NOTHING for piece in tokenize(text))


def kept(pieces: tuple[Piece, ...]) -> list[Token]:
    """Return the tokens that the parser sees."""
    return [(piece.kind, piece.text) for piece in pieces if piece.kind not in TRIVIA]  # type: ignore[misc]


def _settled(tokens: list[Token], items: list[int], blocks: list[list[int]]) -> Iterator[slice]:
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


def stream_of(tokens: list[Token]) -> TokenStream:
    """Columns for the parser; it decides nothing by places, so each token counts as one character."""
    count = len(tokens)
    places = list(range(count + SENTINELS))
    kinds: list[TokenKind] = [kind for kind, _ in tokens]
    texts = [text for _, text in tokens]
    return TokenStream("", kinds + ["EOF"] * SENTINELS, texts + [""] * SENTINELS, places, places, ())


def goes_on(piece: Piece) -> bool:
    """Return whether a piece at the end of a text may become another one when the text goes on."""
    return piece.kind not in {"STRING", "SSTRING", "SPACE", "NL", "DECIMAL"}


def _variants(pieces: tuple[Piece, ...], *, is_strict: bool) -> Iterator[list[Token]]:
    """Yield the tokens of a text for each longer token that its last piece, or last two, may become."""
    last = pieces[-1]
    before = kept(pieces[:-1])
    for token in longer_tokens(last.text):
        yield [*before, token]
    if len(pieces) > 1 and (longer := _number_of(pieces[-2].text, last.text)) is not None:
        yield [*kept(pieces[:-2]), longer]
    if last.text == "/":
        yield [*before, ("NL", "\n")]
    if is_strict:
        return
    if last.kind == "DROPPED_STRING":
        yield [*before, ("NL", "\n")]  # a backslash before a line end ends a string, which is dropped (L7)
    elif last.kind.startswith("DROPPED") or last.kind == "INT":
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
        yield from _spelled(WORDS, text)
    elif first == "\r":
        yield ("NL", "\r\n")
    else:
        yield from _spelled(SYMBOLS | DECORATORS, text)


def _spelled(spellings: frozenset[Any], text: str) -> Iterator[Token]:
    for spelling in sorted(spellings):
        if spelling.startswith(text) and spelling != text:
            yield ("IDENT" if spelling not in KEYWORDS | SYMBOLS | DECORATORS else spelling), spelling


def _number_of(number: str, tail: str) -> Token | None:
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
