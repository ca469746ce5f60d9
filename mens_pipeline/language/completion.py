"""Completion of a text to a program: the tokens that the parser expects at its end, one by one."""

import contextlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from mens_pipeline.language.front_end import DEEP_STACK
from mens_pipeline.language.lexer import Token as Piece
from mens_pipeline.language.lexer import tokenize
from mens_pipeline.language.parser.cursor import ParseError
from mens_pipeline.language.parser.modules import Mode
from mens_pipeline.language.viability import (
    DROPPED,
    NEXT,
    Probe,
    Token,
    Viability,
    ViableText,
    goes_on,
    longer_tokens,
    number_of,
    to_tokens,
)

_TEXT_OF: Final[dict[str, str]] = {
    **dict(zip(("IDENT", "TYPEIDENT", "INT", "FLOAT", "DECIMAL"), ("q", "Q", "1", "1.5", "1dec"), strict=True)),
    "STRING": '"a"',
    "SSTRING": "'a'",
}
_BLANKS: Final = (" ", "\n")
_CLOSERS: Final = (")", "]", "}")
_FILLERS: Final[tuple[str, ...]] = ("q", "0", '"a"', "Q", "{", "fn", "state")
"""What is tried first where any of several tokens would do."""
_WORDS: Final = (*_CLOSERS, *_FILLERS, *(word for kind, word in NEXT if kind != "NL"))
_TOKENS: Final = {word: to_tokens(tokenize(word))[0] for word in _WORDS}
"""Each with the token that it is."""


def complete(text: str, mode: Mode = Mode.SOURCE, *, is_strict: bool = False, max_length: int = 2000) -> str | None:
    """Write what a text lacks to be a program.

    With `is_strict`, what the lexer drops without a word counts as dead; `max_length` is in characters.

    Returns:
        A short continuation, empty for a program. None for a dead text, if `max_length` is too little, or where no
        token may follow, as behind `1`, of which only more digits make something that is dropped (L5).
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
    """A text that knows what may follow, without reading all of itself for each token."""

    def alive(self, pieces: Iterable[str]) -> Iterator[str]:
        """Yield the pieces with which the text can still become a program."""
        return (piece for piece in pieces if self.would_be(piece) is not Viability.DEAD)

    def next_words(self) -> Iterator[str]:
        """Yield the words that may follow, each behind a blank or else behind a line end."""
        tails = {blank: self._tail(blank) for blank in _BLANKS}
        for word, token in _TOKENS.items():
            for blank, tail in tails.items():
                if tail is not None and self._leads_on([*tail, token]):
                    yield f"{blank}{word} "

    def _tail(self, blank: str) -> list[Token] | None:
        """Return the tokens behind which another one is judged as behind the whole text; None where none may follow."""
        pieces = tokenize(self.unsettled + blank)
        is_dropped = self.is_strict and any(piece.kind in DROPPED for piece in pieces)
        if is_dropped or pieces[-1].kind == "COMMENT":  # what follows would be part of it
            return None
        tokens = to_tokens(pieces)
        parser = Probe(tokens, self.mode)
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
    """Yield the texts that may come next, what the parser asks for first; an open string has to end before all else.

    Where what was written last, `before`, is asked for again, it was swallowed, as in `@forall(`.
    """
    pieces = tokenize(text.unsettled)
    last = pieces[-1].text if pieces and goes_on(pieces[-1]) else ""
    if last and last[0] in "\"'":
        return text.alive((last[0], "n" + last[0], "\\\n"))
    asked = _find_asked_token(to_tokens(pieces), text.mode)
    first = () if asked is None else (asked,)
    closers = _CLOSERS if asked is not None and asked == before else ()
    return chain(
        text.alive(("\n",) if last and pieces[-1].kind == "COMMENT" else ()),
        text.alive(f"{blank}{word} " for word in (*closers, *first) for blank in _BLANKS),
        text.next_words(),
        text.alive((*_longer(last), *_rest_of_number(pieces), "/\n")),
    )


def _longer(last: str) -> Iterable[str]:
    """List continuations that turn the last word, number or operator into a longer one."""
    if not last:
        return ()
    if last[0].isdecimal():
        return ".5", "dec"  # an integer above 2^63 is dropped (L5), a longer number is not
    return (longer[len(last) :] for _, longer in longer_tokens(last))


def _rest_of_number(pieces: tuple[Piece, ...]) -> Iterable[str]:
    """List what is missing of a number whose beginning is read as two pieces: `1.` of `1.5`, `1de` of `1dec`."""
    found = number_of(pieces[-2].text, pieces[-1].text) if len(pieces) > 1 else None
    return () if found is None else (found[1][1 + len(pieces[-1].text) :],)


def _find_asked_token(tokens: list[Token], mode: Mode) -> str | None:
    """Return the token that the parser asks for behind these; None unless it asks for one."""
    parser = Probe(tokens, mode)
    with contextlib.suppress(ParseError):
        while parser.skip_newlines() != "EOF":
            parser.item()
    return None if parser.asked is None else _TEXT_OF.get(parser.asked, parser.asked)
