"""Likely causes of an error: text that the reference drops, and words unknown to Vox."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language.diagnostics import Code, Diagnostic, Severity, SourceText
from mens_pipeline.language.lexer import Token, TokenStream
from mens_pipeline.language.parser.cursor import Finding
from mens_pipeline.language.vocabulary import DECORATORS, MAX_INT, TokenKind

_WORD: Final = re.compile(r"@[A-Za-z0-9_.]*")
_LONGEST_QUOTE: Final = 20
_RETIRED_DECORATORS: Final[dict[str, str]] = {
    "@server": "Write `@endpoint(kind: server)`.",
    "@query": "Write `@endpoint(kind: query)`.",
    "@mutation": "Write `@endpoint(kind: mutation)`.",
    "@action": "Write `@endpoint(kind: mutation)`.",
    "@island": "Write `component Name() { ... }`.",
    "@page": "Write a `component` and name it in `routes { }`.",
    "@layout": "Write a `component` and name it in `routes { }`.",
    "@llm": "Write `@ai`.",
    "@theme": "Write `@tokens { ... }`.",
    "@mcp.prompt": "Write `@prompt` or `@mcp.tool`.",
}
_CHARACTER_ADVICE: Final[dict[str, str]] = {
    "&&": "Write `and`.",
    "!": "Write `not`.",
    ";": "Statements need no separator.",
    "\ufeff": "Save the file without a byte-order mark.",
}
_FOREIGN_SIGNS: Final[dict[tuple[Code, str], str]] = {
    (Code.EXPECTED_NAME, "for ("): "Write `for item in list { ... }`, without parentheses.",
    (Code.EXPECTED_TOKEN, "<"): "Type arguments go in brackets: `List[int]`.",
    (Code.EXPECTED_TOKEN, "of"): "Write `in`.",
    (Code.EXPECTED_TYPE, "]"): "Write `List[int]`, not `int[]`.",
}
"""Error and token of another language, some with the token before it -> the spelling in Vox."""


def explain(finding: Finding, stream: TokenStream, text: SourceText) -> tuple[Diagnostic, int | None]:
    """Convert a parser failure to a diagnostic that names its likely cause.

    Also return the offset of the dropped text that caused it, or None. The code of such a diagnostic is
    `unknown-decorator` or `unclosed-string`, or its advice mentions the text.
    """
    start = stream.starts[finding.token]
    found = stream.texts[finding.token]
    error = Diagnostic(
        Severity.ERROR,
        finding.code,
        finding.message,
        text.position(start),
        text.position(start + len(found) if stream.kinds[finding.token] != "NL" else start),
        finding.advice,
    )
    word_start = _decorator_start(finding.token, stream)
    if word_start is not None:
        return _unknown_decorator(error, word_start, text), word_start
    unclosed = _unclosed_string(finding, stream)
    if unclosed is not None:
        return _explain_unclosed(error, unclosed, text), unclosed.start
    if error.advice is not None:
        return error, None
    cause = _dropped_before(start, stream)
    if cause is not None:
        advice = f"`{_quote(cause.text)}` before it is ignored by Vox. {_CHARACTER_ADVICE.get(cause.text, '')}".rstrip()
        return replace(error, advice=advice), cause.start
    signs = (f"{stream.texts[finding.token - 1]} {found}", found)
    return replace(
        error, advice=next((a for sign in signs if (a := _FOREIGN_SIGNS.get((finding.code, sign)))), None)
    ), None


def dropped_warnings(stream: TokenStream, text: SourceText, blamed: frozenset[int]) -> Iterator[Diagnostic]:
    """Yield a warning for each silently dropped piece (L5, L7, L9, L10), unless an error blames its offset."""
    for piece in stream.dropped:
        if piece.start in blamed:
            continue
        code, message = _DROPPED[piece.kind]
        shown = _quote(piece.text)
        advice = _CHARACTER_ADVICE.get(piece.text)
        if code is Code.DROPPED_DECORATOR:
            advice = _decorator_advice(_whole_word(text.text, piece.start))
        yield Diagnostic(
            Severity.WARNING,
            code,
            message.format(shown),
            text.position(piece.start),
            text.position(piece.end),
            advice,
        )


_DROPPED: Final[dict[str, tuple[Code, str]]] = {
    "DROPPED_CHARACTERS": (Code.DROPPED_CHARACTERS, "`{}` means nothing in Vox and is ignored"),
    "DROPPED_DECORATOR": (Code.DROPPED_DECORATOR, "`{}` is not a decorator and is ignored"),
    "DROPPED_NUMBER": (Code.DROPPED_NUMBER, f"`{{}}` is above {MAX_INT} and is ignored"),
    "DROPPED_STRING": (Code.UNCLOSED_STRING, "the string `{}` never closes; it is ignored, with all it swallowed"),
}


def _quote(text: str) -> str:
    line = text.splitlines()[0] if text.splitlines() else text
    short = line if len(line) <= _LONGEST_QUOTE else line[:_LONGEST_QUOTE] + "…"
    return "".join(c if c.isprintable() else f"U+{ord(c):04X}" for c in short)


def _whole_word(source: str, start: int) -> str:
    match = _WORD.match(source, start)
    return match.group() if match else "@"


def _decorator_advice(word: str) -> str | None:
    return _RETIRED_DECORATORS.get(word) or did_you_mean(word, DECORATORS)


def _decorator_start(token: int, stream: TokenStream) -> int | None:
    start = stream.starts[token]
    for piece in stream.dropped:
        if piece.kind == "DROPPED_DECORATOR" and piece.end == start:
            return piece.start
    leftovers: frozenset[TokenKind] = frozenset(("IDENT", "INT", "TYPEIDENT"))
    touches = token > 0 and stream.kinds[token] in leftovers and stream.ends[token - 1] == start
    if touches and stream.texts[token - 1].startswith("@"):
        return stream.starts[token - 1]
    return None


def _unknown_decorator(error: Diagnostic, start: int, text: SourceText) -> Diagnostic:
    word = _whole_word(text.text, start)
    return replace(
        error,
        code=Code.UNKNOWN_DECORATOR,
        message=f"there is no decorator `{word}`",
        start=text.position(start),
        end=text.position(start + len(word)),
        advice=_decorator_advice(word),
    )


def _unclosed_string(finding: Finding, stream: TokenStream) -> Token | None:
    strings = [piece for piece in stream.dropped if piece.kind == "DROPPED_STRING"]
    at_end = finding.code is Code.UNCLOSED_DELIMITER or stream.kinds[finding.token] == "EOF"
    start = stream.starts[finding.token]
    if at_end and strings and strings[-1].end == len(stream.source):
        return strings[-1]
    return next((piece for piece in strings if piece.end == start), None)


def _explain_unclosed(error: Diagnostic, piece: Token, text: SourceText) -> Diagnostic:
    quote = piece.text[0]
    advice = f"Close it with `{quote}`."
    if quote == "'":
        advice += " An apostrophe opens a string; text with one goes in double quotes."
    return replace(
        error,
        code=Code.UNCLOSED_STRING,
        message="the string that begins here is never closed",
        start=text.position(piece.start),
        end=text.position(piece.start + 1),
        advice=advice,
    )


def _dropped_before(start: int, stream: TokenStream) -> Token | None:
    piece = next((piece for piece in reversed(stream.dropped) if piece.end <= start), None)
    is_near = piece is not None and not stream.source[piece.end : start].strip(" \t")
    return piece if is_near else None
