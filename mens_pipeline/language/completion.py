"""Completion of a text to a program: the tokens that the parser expects at its end, one by one."""

import contextlib
from collections.abc import Iterable
from itertools import chain
from typing import Final

from mens_pipeline.language.lexer import tokenize
from mens_pipeline.language.parser.cursor import ParseError
from mens_pipeline.language.parser.modules import Mode
from mens_pipeline.language.viability import (
    NEXT,
    SENTINELS,
    Probe,
    Token,
    Viability,
    ViableText,
    goes_on,
    kept,
    longer_tokens,
)

_TEXT_OF: Final[dict[str, str]] = {
    **dict(zip(("IDENT", "TYPEIDENT", "INT", "FLOAT", "DECIMAL"), ("q", "Q", "1", "1.5", "1dec"), strict=True)),
    "STRING": '"a"',
    "SSTRING": "'a'",
}
_CLOSERS: Final = (")", "]", "}")
_FILLERS: Final[tuple[str, ...]] = ("q", "0", '"a"', "Q", "{", "fn", "state")
"""What is tried first where any of several tokens would do."""


class _Demand(str):
    """The end of the text as a token: it notes which kind the parser compared it with last.

    A look into a set or a table of kinds leaves None: any of them would do.
    """

    __slots__ = ("last",)
    last: str | None

    def __eq__(self, other: object) -> bool:
        if other not in ("EOF", "NL"):
            self.last = str(other)
        return other == "EOF"

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        self.last = None
        return hash("EOF")


def complete(text: str, mode: Mode = Mode.SOURCE, *, is_strict: bool = False, max_length: int = 2000) -> str | None:
    """Write what a text lacks to be a program.

    Args:
        text: Any text.
        mode: How it is read.
        is_strict: Whether what the lexer drops without a word counts as dead.
        max_length: Characters at most.

    Returns:
        A short continuation, empty for a program. None for a dead text, if `max_length` is too little, or where no
        token may follow, as behind `1`, of which only more digits make something that is dropped (L5).
    """
    grown = ViableText(mode, is_strict=is_strict)
    state = grown.append(text)
    written = piece = ""
    while state is Viability.OPEN and len(written) <= max_length:
        fitting = (word for word in _pieces(grown, piece.strip()) if grown.would_be(word) is not Viability.DEAD)
        found = next(fitting, None)
        if found is None:
            return None
        piece = found
        written += piece
        state = grown.append(piece)
    return written if state is Viability.COMPLETE and len(written) <= max_length else None


def _pieces(text: ViableText, before: str) -> Iterable[str]:
    """Return the texts that may come next, what the parser asks for first; an open string has to end before all else.

    Args:
        text: The text so far.
        before: What was written last; where the same is asked for again, it was swallowed, as in `@forall(`.
    """
    pieces = tokenize(text.unsettled)
    last = pieces[-1].text if pieces and goes_on(pieces[-1]) else ""
    if last and last[0] in "\"'":
        return last[0], "n" + last[0], "\\\n"
    asked = _asked(kept(pieces), text.mode)
    closers = _CLOSERS if asked is not None and asked == before else ()
    every = (word for kind, word in NEXT if kind != "NL")
    return chain(
        ("\n",) if last and pieces[-1].kind == "COMMENT" else (),
        (
            f"{blank}{word} "
            for word in chain(closers, () if asked is None else (asked,), _CLOSERS, _FILLERS, every)
            for blank in (" ", "\n")
        ),
        _longer(last),
        ("/\n",),
    )


def _longer(last: str) -> Iterable[str]:
    """List continuations that turn the last word, number or operator into a longer one."""
    if not last:
        return ()
    if last[0].isdecimal():
        return ".5", "dec"  # an integer above 2^63 is dropped (L5), a longer number is not
    return (longer[len(last) :] for _, longer in longer_tokens(last))


def _asked(tokens: list[Token], mode: Mode) -> str | None:
    """Return the token that the parser asks for behind these; None unless it asks for one."""
    demand = _Demand("EOF")
    demand.last = None
    parser = Probe(tokens, mode)
    parser.kinds = [*parser.kinds[: len(tokens)], *[demand] * SENTINELS]  # type: ignore[list-item]
    with contextlib.suppress(ParseError):
        while parser.skip_newlines() != "EOF":
            parser.item()
    return None if demand.last is None else _TEXT_OF.get(demand.last, demand.last)
