"""The token cursor, the base of all parts of the parser.

The parts extend `TokenCursor` in turn. Methods that a part needs from a later one are declared here as abstract.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Never, TypeVar

from mens_pipeline.language.ast.nodes import Expr, Statement
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.lexer import TokenStream
from mens_pipeline.language.vocabulary import ANY_STRING, ID_KINDS, NAME_KINDS, TokenKind

Entry = TypeVar("Entry")

MAX_NESTING: Final = 4000
"""Most levels of nested expressions, prefix operands, blocks, patterns and types.

A nested `if` counts twice, a lambda with a block three times. The language has no limit, but the reference overflows
its stack near this depth (E6). Freeing such a tree takes native stack: threads that parse untrusted text need 1 MiB.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic about the token with index `token`."""

    code: Code
    message: str
    token: int
    advice: str | None = None


class ParseError(Exception):
    """The first failure of a declaration."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class TokenCursor(ABC):
    """A position in a token stream, and the steps of all productions."""

    def __init__(self, stream: TokenStream) -> None:
        self.source = stream.source
        self.kinds = stream.kinds
        self.texts = stream.texts
        self.starts = stream.starts
        self.ends = stream.ends
        self.last = len(stream.kinds) - stream.kinds.count("EOF")
        self.pos = 0
        self.depth = 0
        self.warnings: list[Finding] = []
        self.last_stray: int | None = None

    @abstractmethod
    def expression(self) -> Expr:
        """Parse `Expr` (G33)."""

    @abstractmethod
    def block(self) -> tuple[Statement, ...]:
        """Parse `'{' Block` (G30)."""

    def end(self) -> int:
        """Return the offset after the last consumed token, newlines excluded."""
        return self.ends[self.pos - 1]

    def begin(self) -> int:
        """Consume the first token of a node, and return its offset."""
        pos = self.pos
        self.pos = pos + 1
        return self.starts[pos]

    def skip_newlines(self) -> TokenKind:
        """Skip newlines (`~`), and return the kind of the next token."""
        kinds = self.kinds
        pos = self.pos
        while kinds[pos] == "NL":
            pos += 1
        self.pos = pos
        return kinds[pos]

    def at(self, kind: TokenKind) -> bool:
        """Return whether the next token is of this kind."""
        return self.kinds[self.pos] == kind

    def at_word(self, *words: str) -> bool:
        """Return whether the next token is one of these contextual words."""
        return self.kinds[self.pos] == "IDENT" and self.texts[self.pos] in words

    def take(self, kind: TokenKind) -> bool:
        """Consume the next token if it is of this kind."""
        if self.kinds[self.pos] != kind:
            return False
        self.pos += 1
        return True

    def take_word(self, word: str) -> bool:
        """Consume the next token if it is this contextual word."""
        if not self.at_word(word):
            return False
        self.pos += 1
        return True

    def take_any(self) -> str:
        """Consume one token of any kind, unless the input has ended, and return its text (P4)."""
        text = self.texts[self.pos]
        if self.pos < self.last:
            self.pos += 1
        return text

    def expect(self, kind: TokenKind, where: str, code: Code = Code.EXPECTED_TOKEN, advice: str | None = None) -> None:
        """Consume a token of this kind or reject; `where` describes the place: `after the parameters`."""
        if self.kinds[self.pos] != kind:
            self.fail(code, f"expected `{kind}` {where}", advice)
        self.pos += 1

    def expect_word(self, word: str, where: str, code: Code = Code.EXPECTED_TOKEN) -> None:
        """Consume this contextual word or reject."""
        if not self.take_word(word):
            self.fail(code, f"expected `{word}` {where}")

    def expect_closer(self, kind: TokenKind, opener: int, where: str) -> None:
        """Consume a closing token or reject, at the opener if the text ends; `where` names the list or block."""
        if self.kinds[self.pos] == kind:
            self.pos += 1
        elif self.pos >= self.last:
            message = f"the `{self.texts[opener]}` of {where} is never closed"
            raise ParseError(Finding(Code.UNCLOSED_DELIMITER, message, opener, f"Add `{kind}`."))
        else:
            self.fail(Code.EXPECTED_TOKEN, f"expected `{kind}` to close {where}")

    def name(self, what: str) -> str:
        """Consume a `Name` (G1) or reject; `what` describes it: `a function name`."""
        pos = self.pos
        if self.kinds[pos] not in NAME_KINDS:
            self.fail(Code.EXPECTED_NAME, f"expected {what}")
        self.pos = pos + 1
        return self.texts[pos]

    def identifier(self, what: str, code: Code = Code.EXPECTED_NAME) -> str:
        """Consume an `Id` (G1) or reject."""
        pos = self.pos
        if self.kinds[pos] not in ID_KINDS:
            self.fail(code, f"expected {what}")
        self.pos = pos + 1
        return self.texts[pos]

    def double_quoted(self, what: str, code: Code = Code.EXPECTED_STRING) -> str:
        """Consume a STRING and return its value, or reject."""
        if self.kinds[self.pos] != "STRING":
            advice = "Write it in double quotes." if self.kinds[self.pos] == "SSTRING" else None
            self.fail(code, f"expected {what} in double quotes", advice)
        self.pos += 1
        return unescape(self.texts[self.pos - 1])

    def any_string(self, what: str, code: Code = Code.EXPECTED_STRING) -> str:
        """Consume an `AnyStr` (G1) and return its value, or reject."""
        if self.kinds[self.pos] not in ANY_STRING:
            self.fail(code, f"expected {what} in quotes")
        self.pos += 1
        return unescape(self.texts[self.pos - 1])

    def separated_list(
        self, entry: Callable[[], Entry], closer: TokenKind, where: str, *, spans_lines: bool = False
    ) -> tuple[Entry, ...]:
        """Parse `[ entry { ',' entry } [ ',' ] ] closer`, after its opener, on one line unless `spans_lines` (N6)."""
        entries: list[Entry] = []
        while (self.skip_newlines() if spans_lines else self.kinds[self.pos]) != closer:
            entries.append(entry())
            if not self.take(","):
                break
        self.expect(closer, where)
        return tuple(entries)

    def names_on_line(self, what: str) -> tuple[str, ...]:
        """Consume names up to `)`, after the opener (N6)."""
        return self.separated_list(partial(self.name, what), ")", f"after {what}")

    def in_braces(self, where: str, what: str) -> Iterator[None]:
        """Parse `'{' { ~ entry } ~ '}'`: yield before each entry, which the caller consumes; `what` names the block."""
        opener = self.pos
        self.expect("{", where)
        while self.skip_newlines() != "}":
            if self.pos >= self.last:
                self.expect_closer("}", opener, what)
            yield
        self.pos += 1

    def skip_balanced(self) -> None:
        """Consume `( ... )` with any tokens and balanced parentheses inside (G11)."""
        opener = self.pos
        open_parentheses = 0
        while self.pos < self.last:
            kind = self.kinds[self.pos]
            self.pos += 1
            if kind == "(":
                open_parentheses += 1
            elif kind == ")":
                open_parentheses -= 1
                if open_parentheses == 0:
                    return
        self.expect_closer(")", opener, "these arguments")

    def open_level(self) -> int:
        """Open a level of nesting, and return the depth to restore afterwards."""
        depth = self.depth
        if depth >= MAX_NESTING:
            message = f"nested more than {MAX_NESTING} levels deep"
            advice = "Move inner parts into functions or constants of their own."
            raise ParseError(Finding(Code.NESTING_LIMIT, message, self.pos, advice))
        self.depth = depth + 1
        return depth

    def fail(self, code: Code, expectation: str, advice: str | None = None) -> Never:
        """Reject at the next token, which is added to the message."""
        raise ParseError(Finding(code, f"{expectation}, found {self.next_token_text()}", self.pos, advice))

    def next_token_text(self) -> str:
        """Describe the next token for a message."""
        return describe(self.kinds[self.pos], self.texts[self.pos])


_CLASS_WORDS: Final[dict[TokenKind, str]] = {
    "IDENT": "identifier",
    "TYPEIDENT": "name",
    "INT": "integer",
    "FLOAT": "float",
    "DECIMAL": "decimal",
    "STRING": "string",
    "SSTRING": "single-quoted string",
}
_LONGEST_QUOTE: Final = 40


def describe(kind: TokenKind, text: str) -> str:
    """Describe a token: `identifier `x``, `` `{` ``, `end of line`."""
    if kind == "EOF":
        return "end of file"
    if kind == "NL":
        return "end of line"
    shown = text.splitlines()[0] if text else text
    if len(shown) > _LONGEST_QUOTE or shown != text:
        shown = shown[:_LONGEST_QUOTE] + "…"
    word = _CLASS_WORDS.get(kind)
    if word is None:
        word = "keyword" if text[0].isalpha() else "decorator" if text[0] == "@" else ""
    return f"{word} `{shown}`".lstrip()


def integer(literal: str) -> int:
    """Return the value of an INT token, which may have any number of leading zeros."""
    return int(literal.lstrip("0") or "0")


_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "0": "\0"}


def unescape(literal: str) -> str:
    """Return the value of a string literal with its quotes; an unknown escape keeps its backslash (L6)."""
    body = literal[1:-1]
    if "\\" not in body:
        return body
    parts = body.split("\\")
    value = [parts[0]]
    index = 1
    while index < len(parts):
        part = parts[index]
        if part:
            value.append(_ESCAPES.get(part[0], "\\" + part[0]) + part[1:])
            index += 1
        else:  # two backslashes in a row: one escaped backslash, and the text up to the next one
            value.append("\\" + (parts[index + 1] if index + 1 < len(parts) else ""))
            index += 2
    return "".join(value)
