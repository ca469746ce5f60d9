"""A parse of tokens that notes what it wanted behind the last one: what steers generation asks it what may follow."""

from types import CodeType
from typing import Final

from mens_pipeline.language.ast.statements import Statement
from mens_pipeline.language.lexer import TokenStream
from mens_pipeline.language.parser.modules import Mode, ModuleParser
from mens_pipeline.language.vocabulary import TokenKind

_SENTINELS: Final = 4
"""EOF entries behind the tokens, as many as the lexer writes."""

Token = tuple[TokenKind, str]
"""Kind and text."""
Place = tuple[tuple[CodeType, int], ...]
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

    def found(self) -> str:
        """Ignore it: the next token decides nothing here."""
        return ""

    def _warn_of_stray_word(self, word: str) -> None:
        """Ignore it: warnings are for people."""


def _stream_of(tokens: list[Token], end: tuple[str, str]) -> TokenStream:
    """Return columns for the parser; it decides nothing by places, so each token counts as one character."""
    places = list(range(len(tokens) + _SENTINELS))
    kinds, texts = zip(*tokens, *[end] * _SENTINELS, strict=True)
    return TokenStream("", list(kinds), list(texts), places, places, ())
