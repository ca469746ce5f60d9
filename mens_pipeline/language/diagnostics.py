"""Positions in a text, diagnostics of the front end, and untrusted text made safe to show."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a source text: byte offset in UTF-8, line from 1 (LF ends a line), column in characters from 0."""

    offset: int
    line: int
    column: int


@dataclass(frozen=True)
class SourceText:
    """A text with an index of its lines."""

    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(end.end() for end in re.finditer("\n", self.text))]

    def position(self, index: int) -> Position:
        """Return the position of the character at `index`; a lone surrogate counts three bytes."""
        line = bisect_right(self._line_starts, index)
        column = index - self._line_starts[line - 1]
        offset = index if self.text.isascii() else len(self.text[:index].encode("utf-8", "surrogatepass"))
        return Position(offset, line, column)

    def line(self, number: int) -> str:
        """Return a line, counted from 1, without its line end."""
        start = self._line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].removesuffix("\r")


_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
"""Characters that are invisible, change the writing direction, or cannot be encoded as UTF-8."""


def visible_text(text: str) -> str:
    """Replace invisible characters with marks such as `⟨1B⟩`; keep line ends and tabs."""
    return _UNSEEN.sub(lambda match: f"\u27e8{ord(match[0]):02X}\u27e9", text.replace("\r\n", "\n"))


class Severity(StrEnum):
    """Errors reject a program, warnings never do (E1, E3)."""

    ERROR = "error"
    WARNING = "warning"


class Code(StrEnum):
    """Kind of diagnostic and its rule: Q and W in `vox-names-and-types.md`, the others in `vox-language.md`."""

    EXPECTED_DECLARATION = "expected-declaration"  # G3
    EXPECTED_EXPRESSION = "expected-expression"  # G33
    EXPECTED_NAME = "expected-name"  # G1
    EXPECTED_PATTERN = "expected-pattern"  # G31
    EXPECTED_TOKEN = "expected-token"  # P2
    EXPECTED_TYPE = "expected-type"  # G32
    UNCLOSED_DELIMITER = "unclosed-delimiter"  # E5
    RETIRED_DECLARATION = "retired-declaration"  # S1
    OLD_ARM_ARROW = "old-arm-arrow"  # S2
    INVALID_LAMBDA_HEAD = "invalid-lambda-head"  # S3
    INVALID_WORKFLOW_VERSION = "invalid-workflow-version"  # S4
    INVALID_ENDPOINT_KIND = "invalid-endpoint-kind"  # S5
    UNKNOWN_EFFECT = "unknown-effect"  # S6, S7
    INVALID_IMPORT = "invalid-import"  # S8
    EXPECTED_STRING = "expected-string"  # S9, S10
    INVALID_FORM_ENTRY = "invalid-form-entry"  # S11
    INVALID_DESIGN_TOKEN = "invalid-design-token"  # S12
    INVALID_MOBILE_ENTRY = "invalid-mobile-entry"  # S13
    INVALID_ROUTE_ENTRY = "invalid-route-entry"  # S14
    INVALID_STATE_MACHINE_ENTRY = "invalid-state-machine-entry"  # S15
    INVALID_TRAINING_STRATEGY = "invalid-training-strategy"  # S16
    INVALID_MODIFIER_TARGET = "invalid-modifier-target"  # S17
    INVALID_OBJECT_KEY = "invalid-object-key"  # S18
    INVALID_REACTIVE_HOOK = "invalid-reactive-hook"  # S19
    INVALID_ACTOR_MEMBER = "invalid-actor-member"  # S20
    UNKNOWN_DECORATOR_KEY = "unknown-decorator-key"  # G10
    UNKNOWN_DECORATOR = "unknown-decorator"  # S23
    NESTING_LIMIT = "nesting-limit"  # E6
    INVALID_UTF8 = "invalid-utf8"  # L1
    RETURN_ARROW = "return-arrow"  # E3
    STRAY_WORD = "stray-word"  # N9
    DROPPED_CHARACTERS = "dropped-characters"  # L9
    DROPPED_DECORATOR = "dropped-decorator"  # L10
    DROPPED_NUMBER = "dropped-number"  # L5
    UNCLOSED_STRING = "unclosed-string"  # L7
    UNKNOWN_NAME = "unknown-name"  # Q1
    UNKNOWN_TYPE = "unknown-type"  # Q2
    UNKNOWN_VARIANT = "unknown-variant"  # Q3
    DUPLICATE_DECLARATION = "duplicate-declaration"  # Q4
    DUPLICATE_FIELD = "duplicate-field"  # Q5
    DUPLICATE_VARIANT = "duplicate-variant"  # Q6
    NOT_MUTABLE = "not-mutable"  # Q7
    OUTSIDE_LOOP = "outside-loop"  # Q8
    UNKNOWN_FIELD = "unknown-field"  # W1
    MISSING_FIELD = "missing-field"  # W2
    UNKNOWN_METHOD = "unknown-method"  # W3
    WRONG_ARGUMENT_COUNT = "wrong-argument-count"  # W4
    WRONG_ARGUMENT_NAME = "wrong-argument-name"  # W5
    TYPE_MISMATCH = "type-mismatch"  # W6
    NOT_CALLABLE = "not-callable"  # W7
    MISSING_VARIANT = "missing-variant"  # W8
    UNREACHABLE_ARM = "unreachable-arm"  # W9
    TRY_OUTSIDE_RESULT = "try-outside-result"  # W10
    MISSING_RETURN = "missing-return"  # W11


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding about the text from `start` to `end`, which are equal at the end of the input."""

    severity: Severity
    code: Code
    message: str
    start: Position
    end: Position
    advice: str | None = None
