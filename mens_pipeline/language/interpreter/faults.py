"""Exceptions of the interpreter: errors that end a test, and jumps; none of them leaves this package."""

from typing import Any

from mens_pipeline.language.interpreter.results import ErrorKind, LimitKind, Outcome, Reason, Refusal, TextName

_OUTCOMES: dict[type, Outcome] = {
    ErrorKind: Outcome.ERROR,
    LimitKind: Outcome.LIMIT,
    Refusal: Outcome.UNSUPPORTED,
    type(None): Outcome.FAILED,
}


class VoxError(Exception):
    """The end of a test; the language has no way to catch it.

    `reason` is None for a failed assertion; `place` is the text and the character it happened at, once known.
    """

    def __init__(self, reason: Reason | None, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.place: tuple[TextName, int] | None = None

    @property
    def outcome(self) -> Outcome:
        """Outcome of the test."""
        return _OUTCOMES[type(self.reason)]

    def at(self, text: TextName, start: int) -> "VoxError":
        """Itself, with its place; the innermost place wins."""
        if self.place is None:
            self.place = (text, start)
        return self


class ReturnSignal(Exception):  # noqa: N818 - a jump, no error
    """`return`, and `?` on what has no value: ends the innermost function or lambda."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class BreakSignal(Exception):  # noqa: N818 - a jump, no error
    """`break`: ends the innermost loop."""


class ContinueSignal(Exception):  # noqa: N818 - a jump, no error
    """`continue`: ends this turn of the innermost loop."""
