"""The parsable text around a cursor.

Editors send windows and half-written files. This module keeps the declaration at the cursor, adds the openers that a
window cut off, and keeps every other declaration that parses by itself. It leaves out declarations with errors, so an
error elsewhere in the file does no harm. Each keystroke costs the parse of one declaration.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import gcd
from string import ascii_letters, digits
from typing import Final

from mens_pipeline.language.diagnostics import Code, Diagnostic, Severity
from mens_pipeline.language.front_end import analyze
from mens_pipeline.language.lexer import tokenize
from mens_pipeline.language.parser.modules import LINE_STARTERS, Mode
from mens_pipeline.language.semantics import semantic_diagnostics
from mens_pipeline.language.viability import Viability, ViableText, complete

_MOST_BEFORE: Final = 24_000
_MOST_AFTER: Final = 12_000
"""Most characters read before and after a cursor; a model sees fewer."""
_MOST_PARSED: Final = 60_000
"""Characters to parse in search of the first readable line, before only the line of the cursor is tried."""
_MOST_CUT: Final = 4  # cuts of a suffix to try: whole, without its last line, and so on
_DEEPEST: Final = 5  # most blocks to open before the first line of a window
_OPENERS: Final = frozenset("([{")
_ENDS: Final = frozenset("}])")
_DECLARED_ELSEWHERE: Final = frozenset({Code.UNKNOWN_NAME, Code.UNKNOWN_TYPE, Code.UNKNOWN_VARIANT})
"""Errors that a declaration outside the text could explain."""
_LEARNED_UNIT: Final = "    "
_INDENT: Final = re.compile(r"^[ \t]+(?=\S)", re.MULTILINE)
_FIRST_WORD: Final = re.compile(r"^@?[A-Za-z_]+", re.MULTILINE)  # of a line that is not indented
_OF_WORD: Final = ascii_letters + digits + "_"

_FUNCTION: Final = "fn q() {\n"
_NEXT: Final = "\nfn q() {\n}\n"
_IN_FUNCTION: Final = ("if q {\n", "match q {\n", "_ => {\n")
_COMPONENT: Final = ("component Q() {\n", "view: column() {\n", "column() {\n")
_OTHERS: Final = (
    *("type Q {\n", "actor Q {\n", "state_machine Q {\n", "routes {\n", "@form Q {\n", "@tokens {\n"),
    *(f"{_FUNCTION}let q = {opener}\n" for opener in ("{", "[", "q(")),
)
"""Openers before lines that are neither statements nor parts of a view."""


@dataclass(frozen=True)
class Surroundings:
    """Parsable text before and after a cursor, in place of the client's text.

    `above` and `below` are complete declarations. `prefix` is the declaration at the cursor up to the cursor, and
    `suffix` is its rest. `skipped` has phrases that name the parts left out, and `assumed` has the names that may be
    declared there. `is_window` means that the client may not have sent all declarations, and `is_cut` that the suffix
    may end inside the declaration.
    """

    prefix: str
    suffix: str
    mode: Mode = Mode.SOURCE
    above: str = ""
    below: str = ""
    skipped: tuple[str, ...] = ()
    assumed: frozenset[str] = frozenset()
    is_window: bool = False
    is_cut: bool = False

    def accept(self, piece: str) -> bool:
        """Return whether a piece fits in a file that somebody is typing.

        It fits if it completes the declaration. At the end of a line it also fits if the line is complete, only blocks
        are open after it, and closing some of them completes the declaration. If the text after the cursor was cut
        off, or does not parse even without the line, the line alone decides.
        """
        if self.completes(piece):
            return True
        if self.is_cut and not self._is_sound and any(self._lacks_closers(piece + cut) for cut in self._cuts):
            return True
        _, rest, after = self._lines
        if rest.strip():
            return not self._is_sound and self._lacks_closers(f"{piece}{rest}\n")
        written = f"{self.prefix}{piece}\n"
        num_open = _count_blocks(written, self.mode) if piece.strip() else None
        return num_open is not None and (_is_reached(written, after, num_open, self.mode) or not self._is_sound)

    def _lacks_closers(self, text: str) -> bool:
        closing = complete(self.prefix + text, self.mode)
        return closing is not None and set("}]) \n").issuperset(closing)

    def cut(self, piece: str) -> str | None:
        """Return a piece, or as many of its leading lines as fit; None if nothing fits."""
        ends = [len(piece), *(place for place in range(len(piece) - 1, 0, -1) if piece[place] == "\n")]
        return next((piece[:end] for end in ends if self.accept(piece[:end])), None)

    def runs_on(self, piece: str) -> bool:
        """Return whether a piece is too long: after lines that fit, it closes a block that the suffix closes."""
        return _find_depth(piece)[0] < 0 and _find_depth(self.cut(piece) or "}")[0] == 0

    def completes(self, piece: str) -> bool:
        """Return whether a piece completes the declaration."""
        return analyze(self.prefix + piece + self.suffix, self.mode).ok

    def find_error(self, piece: str) -> Diagnostic | None:
        """Return the first name or type error in a piece; None if there is no error, or the text does not parse.

        The check includes a word that the piece continues. It skips names that may be declared outside the text.
        """
        text = f"{self.above}{self.prefix}{piece}"
        whole = f"{text}{self.suffix}{self.below}"
        if not self.completes(piece):
            own = f"{self.prefix}{piece}{self._lines[1]}\n"
            whole = f"{self.above}{own}{complete(own, self.mode) or ''}\n{self.below}"
        module = analyze(whole, self.mode).module
        if module is None:
            return None
        before = (self.above + self.prefix).rstrip(_OF_WORD)
        begin, end = (len(part.encode("utf-8", "surrogatepass")) for part in (before, text))
        found = [one for one in semantic_diagnostics(module, whole, self.assumed) if one.severity is Severity.ERROR]
        is_window = self.is_window or any(
            one.code in _DECLARED_ELSEWHERE for one in found if not begin <= one.start.offset < end
        )
        new = (one for one in found if begin <= one.start.offset < end)
        return next((one for one in new if not (is_window and one.code in _DECLARED_ELSEWHERE)), None)

    @cached_property
    def is_finished(self) -> bool:
        """Whether there is nothing to complete: in a comment or a string, or after the last declaration of a file."""
        last = next(reversed(tokenize(self.prefix)), None)
        if last is not None and last.kind in {"COMMENT", "DROPPED_STRING"}:
            return True
        *_, line, rest = ("", *self.prefix.rsplit("\n", 1))
        is_blank = not (rest + self.suffix + self.below).strip() and "\n" in self.prefix
        above = line.rstrip().rsplit("\n", 1)[-1]
        return is_blank and not above.startswith(("//", "#", "@")) and analyze(self.prefix + _NEXT, self.mode).ok

    def indent(self, piece: str) -> str:
        """Return a piece with the indentation of the file; models learned to write four spaces.

        After a line end, its first line gets the indentation of the block; after a blank, it gets no more blanks.
        """
        unit = self._indent_unit
        line = self.prefix.rpartition("\n")[2]
        if not line or line[-1] in " \t":
            text = piece.lstrip(" \t")
            piece = ("" if line or text[:1] in {"", "\n"} else self._block_indent(text[0] in _ENDS)) + text
        if unit in {"", _LEARNED_UNIT} or "\n" not in piece:
            return piece
        first, *lines = piece.split("\n")
        begin = _count_columns(self._own_indent)
        levels = [(begin, self._own_indent)]  # columns as written, and the indentation that replaces them
        written = [first]
        for line in lines:
            text = line.lstrip(" \t")
            columns = _count_columns(line[: len(line) - len(text)])
            while len(levels) > 1 and levels[-1][0] > columns:
                levels.pop()
            if columns > levels[-1][0]:
                levels.append((columns, levels[-1][1] + unit))
            num_less = max(0, begin - columns) // len(_LEARNED_UNIT)
            indent = levels[-1][1] if columns >= begin else self._own_indent[: -num_less * len(unit) or None]
            written.append(indent + text if text else "")
        return "\n".join(written)

    def _block_indent(self, is_end: bool) -> str:  # noqa: FBT001 - whether its block ends here
        line = self.prefix.rstrip().rpartition("\n")[2]
        lowest = depth = 0
        for token in tokenize(line):
            depth += (token.text in _OPENERS) - (token.text in _ENDS)
            lowest = min(lowest, depth)
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        unit = self._indent_unit or _LEARNED_UNIT
        if is_end == (depth > lowest):
            return indent
        return indent.removesuffix(unit) if is_end else indent + unit

    @cached_property
    def _own_indent(self) -> str:
        line = self.prefix[self.prefix.rfind("\n") + 1 :]
        return line[: len(line) - len(line.lstrip(" \t"))]

    @cached_property
    def _indent_unit(self) -> str:
        """The indentation of one level in the text: a tab or several spaces; empty if no line is indented."""
        found = _INDENT.findall(f"{self.above}{self.prefix}{self.suffix}{self.below}")
        spaces = [len(one) for one in found if "\t" not in one]
        return "\t" if len(found) > 2 * len(spaces) else " " * gcd(*spaces)

    @cached_property
    def _lines(self) -> tuple[str, str, str]:
        """The text before the line of the cursor, the rest of this line, and the text after it."""
        rest, _, after = self.suffix.partition("\n")
        return self.prefix[: self.prefix.rfind("\n") + 1], rest, after

    @cached_property
    def _cuts(self) -> tuple[str, ...]:
        """The text after the cursor, whole and without its last lines, which may need a line that was cut off."""
        lines = self.suffix.splitlines(keepends=True)
        return tuple("".join(lines[: len(lines) - num]) for num in range(min(_MOST_CUT, len(lines))))

    @cached_property
    def _is_sound(self) -> bool:
        """Whether the declaration is complete without the line of the cursor, or with closed blocks in its place."""
        before, _, after = self._lines
        return _is_reached(before, after, _count_blocks(before, self.mode) or 0, self.mode)


def read_surroundings(prefix: str, suffix: str, mode: Mode = Mode.SOURCE) -> Surroundings:
    """Read the text around a cursor: at most 24,000 characters before it and 12,000 after it."""
    before, after = _take_lines(prefix, -_MOST_BEFORE), _take_lines(suffix, _MOST_AFTER)
    return _CursorReader(mode).read(before, after, is_long=len(before) + len(after) < len(prefix) + len(suffix))


class _CursorReader:
    """Reader of the text around one cursor; it records the parts that it leaves out."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._left_out: list[str] = []
        self._skipped: list[str] = []

    def read(self, prefix: str, suffix: str, *, is_long: bool) -> Surroundings:
        if is_long:
            self._skipped.append("text far from the cursor")
        rest, *below = self._split(suffix, is_start=prefix.endswith("\n"))
        head, *above, own = ("", *parts) if len(parts := self._split(prefix)) == 1 else parts
        is_part = _has_open_string(own) or not _is_alive(own, self._mode)
        if is_part and not all(map(self._is_program, (head, *above))) and _is_alive(prefix, self._mode):
            # A declaration with a string of several lines may look like several declarations.
            head, above, own = "", [], prefix
        opened = self._open(own, -_find_depth(rest)[0])
        is_outside = "{" not in own or self._is_program(own)
        if below and is_outside and "}" not in rest:  # perhaps between decorators of the next declaration
            rest += below.pop(0)
        is_cut = not below
        is_window = is_long or opened != own or not self._is_program(head)
        return Surroundings(
            opened,
            rest,
            self._mode,
            self._keep(head, "an unfinished beginning") + "".join([self._keep(part) for part in above]),
            "".join([self._keep(part) for part in below]),
            tuple(dict.fromkeys(self._skipped)),
            frozenset(token.text for part in self._left_out for token in tokenize(part) if token.text.isidentifier()),
            is_window,
            is_cut,
        )

    def _split(self, text: str, *, is_start: bool = True) -> list[str]:
        """Split a text before each line that can only begin a declaration; the first part precedes all of them.

        `is_start` tells whether the text begins at the start of a line. Lines are read one by one, because an open
        string would hide the lines below it.
        """
        found = _FIRST_WORD.finditer(text)
        starts = [word.start() for word in found if (word.start() or is_start) and _begins_declaration(word[0])]
        parts = [text[: starts[0]] if starts else text]
        for begin, end in pairwise([*starts, len(text)]):
            before = parts[-1]
            # Decorators on lines of their own belong to the declaration below.
            if before.startswith("@") and "{" not in before and not analyze(before, self._mode).ok:
                parts[-1] += text[begin:end]
            else:
                parts.append(text[begin:end])
        return parts

    def _is_program(self, part: str) -> bool:
        is_alone = analyze(part, self._mode).ok and analyze(part + _NEXT, self._mode).ok
        return is_alone and all(token.kind != "DROPPED_STRING" for token in tokenize(part))

    def _keep(self, part: str, name: str = "a declaration with an error") -> str:
        return part if self._is_program(part) else self._leave_out(part, name)

    def _leave_out(self, part: str, name: str) -> str:
        if part.strip():
            self._left_out.append(part)
            self._skipped.append(name)
        return ""

    def _open(self, own: str, depth: int) -> str:
        """Return the parsable end of the declaration at the cursor, with openers in front if it needs them.

        `depth` is the number of blocks that the text after the cursor closes.
        """
        if _is_alive(own, self._mode):
            return own
        lines = own.split("\n")
        is_inside = lines[-1][:1].isspace()
        num_parsed = place = 0
        while place < len(lines):
            part, furthest = "\n".join(lines[place:]), 1
            lowest, end = _find_depth(part)
            # The line of the cursor may itself open a block if it begins a declaration.
            for opener in _list_openers(max(is_inside - lowest, depth - end - (not is_inside)), part):
                num_parsed += len(opener) + len(part)
                if _is_alive(opener + part, self._mode):
                    self._leave_out("\n".join(lines[:place]), "lines above the cursor")
                    return opener + part
                # The parser fails at the first impossible token: from a line before it, it would fail there again.
                error = analyze(opener + part, self._mode).errors[0]
                furthest = max(furthest, error.start.line - opener.count("\n") - 1)
            place += furthest if num_parsed < _MOST_PARSED else max(furthest, len(lines) - place - 1)
        return own


def _has_open_string(text: str) -> bool:
    line = text.rfind("\n")
    return any(token.kind == "DROPPED_STRING" and token.start < line for token in tokenize(text))


def _begins_declaration(word: str) -> bool:
    return word.startswith("@") or tokenize(word)[0].kind in LINE_STARTERS


def _find_depth(text: str) -> tuple[int, int]:
    lowest = depth = 0
    for token in tokenize(text):
        depth += (token.text == "{") - (token.text == "}")
        lowest = min(lowest, depth)
    return lowest, depth


def _list_openers(depth: int, text: str) -> Iterator[str]:
    if depth == 0:
        yield ""
    depth = min(max(1, depth), _DEEPEST)
    for blocks in product(_IN_FUNCTION, repeat=depth - 1):
        if all((inner == _IN_FUNCTION[2]) is (outer == _IN_FUNCTION[1]) for outer, inner in pairwise(("", *blocks))):
            yield _FUNCTION + "".join(blocks)
    yield "".join(_COMPONENT[:depth]) + _COMPONENT[2] * (depth - len(_COMPONENT))
    if depth == 1:
        yield from _OTHERS
        if text.lstrip().startswith("|"):
            yield "type Q =\n"
    else:
        yield "actor Q {\non q() {\n" + _IN_FUNCTION[0] * (depth - 2)


def _take_lines(text: str, number: int) -> str:
    if len(text) <= abs(number):
        return text
    if number < 0:
        part = text[number:]
        return part[part.find("\n") + 1 :]
    return text[: text.rfind("\n", 0, number) + 1] or text[:number]


def _is_alive(text: str, mode: Mode) -> bool:
    return ViableText(mode).append(text) is not Viability.DEAD


def _count_blocks(text: str, mode: Mode) -> int | None:
    closing = complete(text, mode)
    return None if closing is None or not set("} ").issuperset(closing) else closing.count("}")


def _is_reached(text: str, after: str, num_open: int, mode: Mode) -> bool:
    """Return whether closing some open blocks between two texts makes them a program."""
    return any(analyze(f"{text}{'}' * num}\n{after}", mode).ok for num in range(num_open + 1))


def _count_columns(indent: str) -> int:
    return len(indent.replace("\t", _LEARNED_UNIT))
