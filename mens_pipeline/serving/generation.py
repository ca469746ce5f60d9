"""A request for completions, from the client to the queue, and the pieces and results that come back."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from mens_pipeline.inference.generation import Syntax
from mens_pipeline.language.surroundings import Surroundings
from mens_pipeline.models.chat import Turn
from mens_pipeline.serving.http import RequestRefusedError


class Withheld(StrEnum):
    """Reason to withhold a piece at a cursor."""

    DOES_NOT_PARSE = "does_not_parse"  # the file does not parse with it
    WRONG_NAME = "wrong_name"  # it adds an error in names or types
    FINISHED = "finished"  # the cursor is in a comment or a string, or after the last declaration
    UNSURE = "unsure"
    """The mean log-probability of its tokens is below the threshold of the model's evaluation."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request of a client, in any format; None leaves a value to the server.

    `text` (or its tokens, `ids`) is continued instead of a conversation; `suffix` is the text after the cursor at the
    end of `text`. With 0 `num_completions`, the client only announces a prompt. A temperature of 0 always selects the
    most likely token. `stop` texts end a completion and are not part of it. `num_likeliest` tokens are reported at each
    position; None: no tokens. `limit_field` is the client's name for `max_tokens`; `ignored` fields have no effect
    here; `id` identifies the request in reports of accepted text.
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

    @property
    def continues_text(self) -> bool:
        """Whether a completion begins in the middle of a text of the client."""
        return self.text is not None or self.turns[-1].role == "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """A request that can be queued: prompt, limits and sampling are decided.

    The cursor of `asked` is in its `text` and `suffix`, without marks; `around` is the text around it for the parser.
    `num_after` is the number of prompt tokens after the cursor, if they come last.
    `threshold` is the mean log-probability of a token below which a piece at a cursor is withheld. `deadline` is on the
    monotonic clock. `warnings` are sentences on deviations from the request.
    """

    asked: GenerationRequest
    prompt: tuple[int, ...]
    max_tokens: int
    syntax: Syntax
    seed: int
    deadline: float
    temperature: float = 0.0
    top_p: float = 1.0
    best_of: int = 1
    around: Surroundings | None = None
    num_after: int = 0
    threshold: float | None = None
    shows_errors: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def is_chosen(self) -> bool:
        """Whether one of several completions is sent."""
        return self.best_of > 1


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A generated token, as the model scored it, with the most likely ones at its position.

    `text` is the token decoded alone; half a character is U+FFFD. Log-probabilities are natural logarithms, at
    temperature 1 and before the parser constrains.
    """

    text: str
    log_probability: float
    others: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """More text of a completion, with its tokens if requested; the text may then be empty."""

    text: str
    tokens: tuple[ScoredToken, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A completion that has ended.

    `reason` is `stop` (the model ended its turn, or a stop text came) or `length`. `num_tokens` counts tokens sent,
    including the end of the turn; `num_computed` also counts tokens that are not sent. `prompt_seconds` ends with the
    first token, `seconds` starts there. `likelihood` is the mean log-probability of its tokens; None if not needed. The
    figures cover all `best_of` completions that it was chosen from. `withheld` is why its text is not sent, `cut` why
    the server ended it: it repeated itself, or time ran out.
    """

    text: str
    tokens: tuple[ScoredToken, ...]
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
        """Fields outside the formats of clients: decoding, number of candidates, and why it was cut or withheld."""
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
    """One completion of a request, for the queue; `number` is its place in the request, from 0.

    `listen` receives its events in the thread of the queue; the last one is `GenerationResult` or `Failed`. If the text
    may be withheld, no piece comes before the end. `is_cancelled` is set when nobody waits for it any more.
    """

    request: PreparedRequest
    number: int
    listen: Callable[[Event], None]
    is_cancelled: bool = False


_REPLACEMENT: Final = "\ufffd"
"""Decoders emit it for bytes that are not, or not yet, a character."""


class TextStream:
    """The text of one completion as it grows; the joined pieces equal the decoded tokens.

    The next `num_left_out` characters are skipped, because the client already has them.
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
        """Add a token and return the text that is now certain, which may be empty."""
        self._tokens.append(token)
        text = self._window()
        certain = text.rstrip(_REPLACEMENT)
        piece, self._taken = certain[self._taken :], max(self._taken, len(certain))
        if certain == text:
            self._start, self._read, self._taken = self._read, len(self._tokens), 0
        return self._cut_at_stop(piece)

    def end(self) -> str:
        """Return the rest after the last token; half a character becomes U+FFFD."""
        if self.is_stopped:
            return ""
        piece = self._cut_at_stop(self._window()[self._taken :])
        if not self.is_stopped:
            piece, self._held = piece + self._held, ""
        return piece

    def _window(self) -> str:
        """Return the text of the unsettled tokens, decoded together with the tokens before: some decoders need them."""
        settled = self._decode(self._tokens[self._start : self._read])
        return self._decode(self._tokens[self._start :])[len(settled) :]

    def _cut_at_stop(self, piece: str) -> str:
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
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
