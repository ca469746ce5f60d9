r"""Regular expressions in the syntax of the Rust crate, run by Python's engine (F8).

Python's engine can take exponential time to search, and long to compile; the wall time of the test bounds both. What
of Rust's syntax Python has no word for is an `Error`, and no match by accident: operations on classes, classes by name
such as `[[:alpha:]]`, Unicode properties (`\p{...}`, `\P{...}`), code points in braces (`\x{...}`, `\u{...}`), starts
and ends of words (`\<`, `\>`, `\b{...}`).
"""

import re
from dataclasses import dataclass
from typing import Final

from mens_pipeline.language.interpreter.library.scalars import a_text, an_int
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.values import NONE, Native, Value, Variant, error, ok, some

_LONGEST_PATTERN: Final = 4096
_UNKNOWN_GROUPS: Final = re.compile(r"\?(?:<?[=!]|\(|>|P=|#)")
_MULTILINE: Final = re.compile(r"\(\?[a-z]*m")
_CLASS_OPERATORS: Final = frozenset(("&&", "--", "~~"))
_UNKNOWN_ESCAPES: Final = frozenset((r"\N", r"\Z", r"\<", r"\>"))
_POSSESSIVE: Final = frozenset(("*+", "++", "?+", "}+"))


@dataclass(frozen=True, slots=True, eq=False)
class Regex:
    """A compiled pattern."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """One match: its groups, the whole match first; None where a group took no part."""

    groups: tuple[str | None, ...]


class _PatternError(ValueError):
    """A pattern that the Rust crate does not know."""


def compile_pattern(machine: Machine, pattern: Value) -> Variant:
    """`std.regex.compile`: a Result."""
    text = a_text(pattern, "a pattern")
    if len(text) > _LONGEST_PATTERN:
        return error(f"regex: a pattern of more than {_LONGEST_PATTERN} characters")
    try:
        with machine.interruptible():
            return ok(Regex(re.compile(_translate(text))))
    except (ValueError, re.error, OverflowError) as problem:
        return error(f"regex: {problem}")


def _translate(text: str) -> str:
    """Translate the pattern for Python; refuse what only Python knows."""
    end = "$" if _MULTILINE.search(text) else r"\Z"
    parts: list[str] = []
    index, in_class = 0, False
    while index < len(text):
        piece = text[index : index + 2] if text[index] == "\\" else text[index]
        _refuse(piece in _UNKNOWN_ESCAPES, f"`{piece}` is not supported")
        if in_class:
            in_class = piece != "]" or parts[-1] in {"[", "[^"}
            _refuse(
                text[index : index + 2] in _CLASS_OPERATORS or piece == "[", "operations on classes are not supported"
            )
            piece = r"\|" if piece == "|" else piece
        elif piece == "[":
            piece = "[^" if text.startswith("[^", index) else "["
            in_class = True
        else:
            _check_piece(text, index, piece)
            piece = "(?<" if text.startswith("(?<", index) else piece
        parts.append({"$": end, r"\z": r"\Z", "(?<": "(?P<"}.get(piece, piece) if not in_class else piece)
        index += len(piece) if text.startswith(piece, index) else 1
    return "".join(parts)


def _check_piece(text: str, index: int, piece: str) -> None:
    _refuse(piece == r"\b" and text.startswith("{", index + 2), r"`\b{...}` is not supported")
    _refuse(text.startswith("{,", index), "a repetition without its least number is not supported: write `{0,n}`")
    _refuse(piece[0] == "\\" and piece[1:].isdigit(), "back-references are not supported")
    _refuse(
        piece == "(" and _UNKNOWN_GROUPS.match(text, index + 1) is not None,
        "look-around, conditions and atomic groups are not supported",
    )
    _refuse(text[index : index + 2] in _POSSESSIVE, "possessive quantifiers are not supported")


def _refuse(condition: bool, problem: str) -> None:  # noqa: FBT001 - reads as a sentence
    if condition:
        raise _PatternError(problem)


def _find(machine: Machine, regex: Regex, text: Value) -> Variant:
    found = _search(machine, regex, text)
    return NONE if found is None else some(_to_match(found))


def _find_all(machine: Machine, regex: Regex, text: Value) -> list[Value]:
    matches: list[Value] = []
    with machine.interruptible():
        for found in regex.pattern.finditer(_subject(machine, text)):
            machine.allocate(1 + len(found.group()))
            machine.charge(1)
            matches.append(_to_match(found))
    return matches


def _search(machine: Machine, regex: Regex, text: Value) -> re.Match[str] | None:
    with machine.interruptible():
        return regex.pattern.search(_subject(machine, text))


def _subject(machine: Machine, text: Value) -> str:
    subject = a_text(text, "what a regex searches")
    machine.charge(len(subject) // 8)
    return subject


def _to_match(found: re.Match[str]) -> Match:
    return Match((found.group(), *found.groups()))


def _group(_machine: Machine, match: Match, index: Value) -> Variant:
    number = an_int(index, "the argument of `group`")
    group = match.groups[number] if 0 <= number < len(match.groups) else None
    return NONE if group is None else some(group)


REGEX_METHODS: Final[dict[str, Native]] = {
    "matches": Native("matches", lambda *found: _search(*found) is not None, 1, 1),
    "find": Native("find", _find, 1, 1),
    "find_all": Native("find_all", _find_all, 1, 1),
}
MATCH_METHODS: Final[dict[str, Native]] = {"group": Native("group", _group, 1, 1)}
