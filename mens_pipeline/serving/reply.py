"""One answer that is asked for, and what becomes of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.serving.body import RequestRefusedError


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token that was written, as the model saw it.

    Attributes:
        text: What it decodes to alone; half a character is U+FFFD.
        log_probability: Natural logarithm, at a temperature of 1 and before the parser steers.
    """

    text: str
    log_probability: float
    others: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Some more text of an answer, and where tokens are asked for those since the piece before, perhaps textless."""

    text: str
    tokens: tuple[Drawn, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an answer.

    Attributes:
        reason: `stop`: the model ended its turn, or a stop text came. `length`: the limit was reached.
        num_tokens: Tokens written, the end of the turn included.
        prompt_seconds: From when it was begun until its first token.
        seconds: From its first token to its last.
        is_constrained: Whether the parser steered what was written.
        likelihood: Mean log-probability of its tokens; None where it was not asked for.
    """

    reason: Literal["stop", "length"]
    num_tokens: int
    prompt_seconds: float
    seconds: float
    is_constrained: bool
    likelihood: float | None = None
    best_of: int = 1


@dataclass(frozen=True, slots=True)
class Failed:
    """An answer that does not come to its end."""

    why: RequestRefusedError


Event = Piece | Ended | Failed


@dataclass(eq=False, slots=True)
class Reply:
    """One answer that is asked for.

    Attributes:
        start: What the draws depend on.
        deadline: When it must have ended, on the monotonic clock.
        listen: Takes what becomes of it, in the thread that writes answers; the last event is `Ended` or `Failed`.
        syntax: Whether the parser steers it. With a fallback no piece comes before the first try has ended.
        names: Whether, where the parser steers, members that a value has not are refused.
        is_scored: Whether the end says how likely it is.
        num_likeliest: Most likely tokens that are told of each place; None: pieces come without their tokens.
        is_gone: Set when nobody waits for it any more.
    """

    prompt: tuple[int, ...]
    temperature: float
    top_p: float
    start: str
    max_new_tokens: int
    stop: tuple[str, ...]
    deadline: float
    listen: Callable[[Event], None]
    syntax: Syntax
    names: bool = False
    is_scored: bool = False
    num_likeliest: int | None = None
    is_gone: bool = False


_REPLACEMENT: Final = "\ufffd"
"""What stands for bytes that are no character, or not yet."""


class TextStream:
    """The text of one answer in the making; all pieces together are what the whole decodes to."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> None:
        self._decode = decode
        self._stop = tuple(stop)
        self._tokens: list[int] = []
        self._start = 0
        self._read = 0
        self._taken = 0
        self._held = ""
        self.is_stopped = False

    def feed(self, token: int) -> str:
        """Add a token and return the text that it makes certain; empty when it makes none."""
        self._tokens.append(token)
        text = self._window()
        certain = text.rstrip(_REPLACEMENT)
        piece, self._taken = certain[self._taken :], max(self._taken, len(certain))
        if certain == text:
            self._start, self._read, self._taken = self._read, len(self._tokens), 0
        return self._unless_stopped(piece)

    def end(self) -> str:
        """Return what is left when the last token has come, half a character as U+FFFD."""
        if self.is_stopped:
            return ""
        piece = self._unless_stopped(self._window()[self._taken :])
        if not self.is_stopped:
            piece, self._held = piece + self._held, ""
        return piece

    def _window(self) -> str:
        """Return the text of the unsettled tokens; what came before is decoded with them, as decoders may ask."""
        settled = self._decode(self._tokens[self._start : self._read])
        return self._decode(self._tokens[self._start :])[len(settled) :]

    def _unless_stopped(self, piece: str) -> str:
        text = self._held + piece
        places = [place for place in (text.find(stop) for stop in self._stop) if place >= 0]
        if places:
            self.is_stopped, self._held = True, ""
            return text[: min(places)]
        held = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text may begin a stop text."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
