"""Source text to tokens, without loss: the joined texts of all tokens are the source.

One compiled pattern splits the whole text in a single pass; a dictionary from spelling to kind, filled on demand,
classifies the pieces. Lexing never rejects (L2).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple, cast

from mens_pipeline.language.vocabulary import DECORATORS, KEYWORDS, MAX_INT, SYMBOLS, TRIVIA, TokenKind, TriviaKind

_CLOSED_STRING: Final = re.compile(r'"(?:[^"\\]++|\\[^\n])*+"|' + r"'(?:[^'\\]++|\\[^\n])*+'")
_DROPPED: Final = frozenset(("DROPPED_CHARACTERS", "DROPPED_DECORATOR", "DROPPED_NUMBER", "DROPPED_STRING"))
SENTINELS: Final = 4
"""EOF entries at the end: the longest lookahead (four tokens, G6) then needs no bounds check."""

_FIXED: Final[dict[str, TokenKind | TriviaKind]] = {
    **{word: word for word in KEYWORDS},
    **{symbol: symbol for symbol in SYMBOLS},
    **{decorator: decorator for decorator in DECORATORS},
    "\n": "NL",
    "\r\n": "NL",
}


def _longest_first(spellings: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(spellings, key=lambda spelling: (-len(spelling), spelling))))


def _walk(spellings: Iterable[str]) -> str:
    """Return a pattern for the longest prefix of any spelling (L10)."""
    tails: dict[str, list[str]] = {}
    for spelling in spellings:
        if spelling:
            tails.setdefault(spelling[0], []).append(spelling[1:])
    steps = "|".join(re.escape(first) + _walk(rest) for first, rest in sorted(tails.items()))
    return f"(?:{steps})?" if steps else ""


def _string(quote: str) -> str:
    """Return a pattern for a string, up to its closing quote, a backslash before LF, or the end (L6, L7)."""
    return rf"{quote}(?:[^{quote}\\]++|\\[^\n])*+(?:{quote}|\\?)"


_PIECES: Final = re.compile(
    "|".join(
        (
            r"[ \t]+",
            r"[A-Za-z_][A-Za-z0-9_]*",
            r"\r?\n",
            r"(?://|#)[^\n\r]*",
            _longest_first(SYMBOLS - {"_"}),
            _string('"'),
            _string("'"),
            r"[0-9]+(?:\.[0-9]+)?(?:dec)?",
            _longest_first(DECORATORS),
            "@" + _walk(decorator[1:] for decorator in DECORATORS),
            r"[\r!]",
            r"[^A-Za-z0-9_\"'@#(){}\[\]:?,.=!+\-*/<>|% \t\r\n]+",
        )
    )
)


class Token(NamedTuple):
    """One piece of the source, `source[start:end]`; a fixed spelling is its own kind."""

    kind: TokenKind | TriviaKind
    text: str
    start: int
    end: int

    @property
    def is_trivia(self) -> bool:
        """Whether the parser skips this token."""
        return self.kind in TRIVIA


@dataclass(frozen=True, slots=True)
class TokenStream:
    """The tokens that the parser sees, as parallel columns that end with EOF entries.

    Attributes:
        ends: Offset after the last character; a newline repeats the end of the token before it, so that no node
            includes the blank lines after it.
        dropped: Pieces that the reference drops silently.
    """

    source: str
    kinds: list[TokenKind]
    texts: list[str]
    starts: list[int]
    ends: list[int]
    dropped: tuple[Token, ...]


class _KindOf(dict[str, TokenKind | TriviaKind]):
    def __missing__(self, text: str) -> TokenKind | TriviaKind:
        kind = self[text] = _classify(text)
        return kind


def _classify(text: str) -> TokenKind | TriviaKind:
    first = text[0]
    if "a" <= first <= "z" or first == "_":
        return "IDENT"
    if "A" <= first <= "Z":
        return "TYPEIDENT"
    if first in " \t":
        return "SPACE"
    if first == "#" or text.startswith("//"):
        return "COMMENT"
    if "0" <= first <= "9":
        return _classify_number(text)
    if first in "\"'":
        if not _CLOSED_STRING.fullmatch(text):
            return "DROPPED_STRING"
        return "STRING" if first == '"' else "SSTRING"
    return "DROPPED_DECORATOR" if first == "@" else "DROPPED_CHARACTERS"


def _classify_number(text: str) -> TokenKind | TriviaKind:
    if text.endswith("dec"):
        return "DECIMAL"
    if "." in text:
        return "FLOAT"
    digits = text.lstrip("0")
    too_large = len(digits) > len(str(MAX_INT)) or int(digits or "0") > MAX_INT
    return "DROPPED_NUMBER" if too_large else "INT"


def tokenize(source: str) -> tuple[Token, ...]:
    """Return all tokens of a text, trivia included, without an EOF token (L1-L14)."""
    texts = _PIECES.findall(source)
    kinds = map(_KindOf(_FIXED).__getitem__, texts)
    edges = list(accumulate(map(len, texts), initial=0))
    # Four times as fast as calling the class for each token.
    return tuple(map(partial(tuple.__new__, Token), zip(kinds, texts, edges, edges[1:], strict=False)))


def scan(source: str) -> TokenStream:
    """Tokenize a text into the columns that the parser reads: significant tokens and newlines."""
    pieces: list[str] = _PIECES.findall(source)
    piece_kinds = list(map(_KindOf(_FIXED).__getitem__, pieces))
    piece_starts = list(accumulate(map(len, pieces), initial=0))
    kept = [index for index, kind in enumerate(piece_kinds) if kind not in TRIVIA]
    kinds = cast("list[TokenKind]", [piece_kinds[index] for index in kept])
    texts = [pieces[index] for index in kept]
    starts = [piece_starts[index] for index in kept]
    ends = []
    end = 0
    for kind, text, start in zip(kinds, texts, starts, strict=True):
        if kind != "NL":
            end = start + len(text)
        ends.append(end)
    dropped = tuple(
        Token(kind, pieces[index], piece_starts[index], piece_starts[index + 1])
        for index, kind in enumerate(piece_kinds)
        if kind in _DROPPED
    )
    return TokenStream(
        source,
        kinds + ["EOF"] * SENTINELS,
        texts + [""] * SENTINELS,
        starts + [len(source)] * SENTINELS,
        ends + [end] * SENTINELS,
        dropped,
    )
