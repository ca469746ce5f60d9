"""One answer that is asked for, and what becomes of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mens_pipeline.delivery.serving.refusal import RequestRefusedError
from mens_pipeline.inference.sampling import Syntax


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
    """Some more text of an answer.

    Attributes:
        text: It; empty where tokens ended without a text of their own.
        tokens: What was written since the piece before; empty where nobody asked for tokens.
    """

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
