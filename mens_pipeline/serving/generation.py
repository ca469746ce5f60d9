"""One request for completions from the edge to the queue, and what comes back: pieces of text, then a result."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any, Final, Literal

from mens_pipeline.inference.generation import Syntax
from mens_pipeline.models.chat import Turn
from mens_pipeline.serving.http import RequestRefusedError


class Withheld(StrEnum):
    """Reason to withhold a piece at a cursor."""

    DOES_NOT_STAND = "does_not_stand"
    """The whole is no program with it."""
    UNSURE = "unsure"
    """The mean log-probability of its tokens is below the threshold of the model's evaluation."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request for completions; `RequestPreparer.prepare` fills in the fields that the client leaves out (None).

    Attributes:
        model: What the client calls it; empty where it names none.
        turns: The conversation; empty where a text or its tokens are to be continued.
        text: The text to continue, in place of a conversation.
        suffix: What stands behind the cursor that the text ends at; None where none was sent.
        ids: Its tokens, where the client sent those.
        temperature: 0: always the most likely token.
        top_p: Share of probability that is sampled from.
        stop: Texts that end a completion, and are no part of it.
        syntax: Whether the parser constrains the tokens.
        best_of: Completions of which one is chosen.
        num_likeliest: Most likely tokens to report at each position; None: no tokens are reported.
        limit_field: What the client calls `max_tokens`, for messages.
        ignored: Fields of the request that change nothing here.
        id: By which clients report what became of it.
        prompt: Tokens that the model reads; filled in.
        names: Whether the constraint also refuses members that the type of a value does not have; filled in.
        threshold: Mean log-probability of a token below which a piece at a cursor is withheld; filled in.
        deadline: When all completions must have ended, on the monotonic clock; filled in.
        warnings: Sentences on what is done in another way than the request says; filled in.
    """

    model: str
    turns: tuple[Turn, ...] = ()
    text: str | None = None
    suffix: str | None = None
    ids: tuple[int, ...] = ()
    num_completions: int = 1
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    syntax: Syntax | None = None
    best_of: int | None = None
    num_likeliest: int | None = None
    limit_field: str = "max_tokens"
    ignored: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    prompt: tuple[int, ...] = ()
    names: bool = False
    threshold: float | None = None
    deadline: float = inf
    warnings: tuple[str, ...] = ()

    @property
    def continues_text(self) -> bool:
        """Whether a completion begins in the middle of a text of the client."""
        return self.text is not None or self.turns[-1].role == "assistant"

    @property
    def is_chosen(self) -> bool:
        """Whether one of several completions is given."""
        return self.best_of is not None and self.best_of > 1


@dataclass(frozen=True, slots=True)
class Token:
    """A generated token, as the model scored it.

    Attributes:
        text: What it decodes to alone; half a character is U+FFFD.
        log_probability: Natural logarithm, at a temperature of 1 and before the parser constrains.
        others: The most likely tokens at its position with their log-probabilities, most likely first.
    """

    text: str
    log_probability: float
    others: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """More text of a completion; its tokens only where the request asks for them, perhaps tokens without text."""

    text: str
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A completion that has ended.

    Attributes:
        text: The text of all its pieces.
        reason: `stop`: the model ended its turn, or a stop text came. `length`: the limit was reached.
        num_tokens: Tokens of what is sent, the end of the turn included.
        num_computed: Tokens that were generated for it, those that are not sent among them.
        prompt_seconds: From its start until its first token.
        seconds: From its first token to its last.
        is_constrained: Whether the parser constrained its tokens.
        likelihood: Mean log-probability of its tokens; None where neither a choice nor a threshold asks for it.
        best_of: Of how many completions it was chosen; the figures are then those of all of them.
        withheld: Why its text is not sent; None where it is.
        cut: Why it was ended from outside: it repeated itself, or time was over; None where it was not.
    """

    text: str
    tokens: tuple[Token, ...]
    reason: Literal["stop", "length"]
    num_tokens: int
    num_computed: int
    prompt_seconds: float
    seconds: float
    is_constrained: bool
    likelihood: float | None = None
    best_of: int = 1
    withheld: Withheld | None = None
    cut: Literal["repetition", "timeout"] | None = None

    @property
    def details(self) -> dict[str, Any]:
        """Fields of no client's format: the decoding, how it was chosen, and why it was cut or is not sent."""
        decoding = "constrained" if self.is_constrained else "free"
        chosen = {"best_of": self.best_of} if self.best_of > 1 else {}
        ended = {"withheld": self.withheld, "cut": self.cut}
        return {"decoding": decoding, **chosen, **{name: why for name, why in ended.items() if why is not None}}


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a completion that has no result."""

    why: RequestRefusedError


Event = Piece | GenerationResult | Failed


@dataclass(eq=False, slots=True)
class PendingCompletion:
    """One of the completions of a request, for the queue.

    Attributes:
        number: Its place in the request, from 0.
        listen: Takes its events, in the thread of the queue; the last one is `GenerationResult` or `Failed`. Where a
            piece may be withheld, none comes before it has ended.
        is_cancelled: Set when nobody waits for it any more.
    """

    request: GenerationRequest
    number: int
    listen: Callable[[Event], None]
    is_cancelled: bool = False


_REPLACEMENT: Final = "\ufffd"
"""Decoders put it in place of bytes that are no character, or not yet."""


class TextStream:
    """The text of one completion as it grows; all pieces together are what all tokens decode to.

    The next `num_left_out` characters are left out: the client has them.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str], *, num_left_out: int = 0) -> None:
        self._decode = decode
        self.num_left_out = num_left_out
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
        text = self._held + piece[self.num_left_out :]
        self.num_left_out = max(0, self.num_left_out - len(piece))
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
