"""The queue of completions and the thread that generates them, some at once; cancelled and late ones are dropped."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from mens_pipeline.errors import MensError
from mens_pipeline.inference.constraint import Constraint
from mens_pipeline.inference.engine import Engine, Slot
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.inference.insert_constraint import InsertConstraint
from mens_pipeline.inference.sampling import Sampler, likeliest, log_probability
from mens_pipeline.language import Mode
from mens_pipeline.serving.generation import (
    Failed,
    GenerationResult,
    PendingCompletion,
    Piece,
    TextStream,
    Token,
    Withheld,
)
from mens_pipeline.serving.http import RequestRefusedError

if TYPE_CHECKING:
    import torch

_WAITING_PER_SLOT: Final = 4
_PIECE: Final = 512
"""Tokens of a prompt that are read at once; longer ones let others go on in between."""
_FIRST_GUESS_SECONDS: Final = 5.0
_NEWEST: Final = 0.2
"""The weight of the newest completion in the mean of their seconds."""


class State(StrEnum):
    """State of the generation thread."""

    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that can generate, in evaluation mode; any of the ids of `stop` ends a turn."""

    model: Any
    stop: frozenset[int]
    tokenizer: Any

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode some tokens to text; control tokens among them have none."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def new_engine(self, num_slots: int) -> "SlotEngine":
        """Return an engine that writes so many completions at once, or fewer."""
        return Engine[_ServedSlot](self.model, self.stop, num_slots, piece=_PIECE)


class SlotEngine(Protocol):
    """Interface of an engine to the queue; `Engine` documents it."""

    num_slots: int

    def admit(self, slot: "_ServedSlot", /) -> None:
        """Let a completion take a free slot."""

    def step(self) -> "list[_ServedSlot]":
        """Write a token of each completion, and return those that have ended."""

    def clear(self) -> None:
        """Drop all completions."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server; its timeout is in seconds, from a request to its last token."""

    max_concurrent: int
    max_request_bytes: int
    timeout: float
    max_new_tokens: int

    @property
    def max_waiting(self) -> int:
        """Completions that may wait for a slot."""
        return _WAITING_PER_SLOT * self.max_concurrent


@dataclass(slots=True)
class Totals:
    """Counters of completions that ended in an engine: tokens of prompts, tokens written, and how they ended.

    Attributes:
        ended: Decoding (`free`, `constrained`) and reason (`stop`, `length`) -> completions.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, num_prompt: int, result: GenerationResult) -> None:
        """Count a completion."""
        self.prompt_tokens += num_prompt
        self.completion_tokens += result.num_tokens
        self.ended["constrained" if result.is_constrained else "free", result.reason] += 1


@dataclass(eq=False, kw_only=True)
class _ServedSlot(Slot):
    """A completion of a request, which passes on its text as it becomes certain.

    Attributes:
        decode: Tokens -> text.
        begun: When it took its slot, on the monotonic clock.
        num_before: Tokens of a first try that was no program.
        pieces: What has become certain of it, in order.
        unsent: Tokens since the last piece.
        first_token: When it came, on the monotonic clock.
    """

    completion: PendingCompletion
    decode: Callable[[Sequence[int]], str]
    stream: TextStream
    begun: float
    num_before: int = 0
    pieces: list[Piece] = field(default_factory=list)
    unsent: list[Token] = field(default_factory=list)
    first_token: float = 0.0

    @property
    def is_cancelled(self) -> bool:
        return self.completion.is_cancelled

    @property
    def is_first_try(self) -> bool:
        """Whether it is generated again, constrained, if it is no program."""
        return self.completion.request.syntax is Syntax.FALLBACK and self.constraint is None

    @property
    def is_second_try(self) -> bool:
        """Whether it is a second try at a cursor, which is sent only if it stands there."""
        return self.completion.request.suffix is not None and self.constraint is not None

    @property
    def is_held(self) -> bool:
        """Whether it may be generated again or withheld; until that is known, no piece is sent."""
        return self.is_first_try or self.is_second_try or self.completion.request.threshold is not None

    def take(self, token: int, scores: "torch.Tensor", stop: frozenset[int]) -> None:
        """Write a token, and pass on the text that it makes certain; the one that ends the turn has none."""
        if not self.tokens:
            self.first_token = time.monotonic()
        super().take(token, scores, stop)
        text = ""
        if token not in stop:
            self._describe(token, scores)
            text = self.stream.feed(token)
        if self.end is not None:
            text += self.stream.end()
        if self.stream.is_stopped:
            self.end = "stop"
        if text or (self.end is not None and self.unsent):
            self.pieces.append(Piece(text, tuple(self.unsent)))
            self.unsent.clear()
            if not self.is_held:
                self.completion.listen(self.pieces[-1])

    def _describe(self, token: int, scores: "torch.Tensor") -> None:
        """Note a token and the most likely ones at its position, where the request asks for them."""
        num = self.completion.request.num_likeliest
        if num is not None:
            others = likeliest(scores, num) if num else ()
            texts = tuple((self.decode([other]), value) for other, value in others)
            self.unsent.append(Token(self.decode([token]), log_probability(scores, token), texts))

    def to_result(self, reason: Literal["stop", "length"]) -> GenerationResult:
        return GenerationResult(
            text="".join(piece.text for piece in self.pieces),
            tokens=tuple(chain(*(piece.tokens for piece in self.pieces))),
            reason=reason,
            num_tokens=self.num_before + len(self.tokens),
            prompt_seconds=self.first_token - self.begun,
            seconds=time.monotonic() - self.first_token,
            is_constrained=self.constraint is not None,
            likelihood=None if self.log_probability is None else self.log_probability / len(self.tokens),
        )


class GenerationQueue:
    """Generates completions in a thread of its own, in the order in which they are submitted."""

    def __init__(self, load: Callable[[], Loaded], limits: Limits, changed: Callable[[State], None]) -> None:
        """Prepare the thread, in which `load` and, with each new state, `changed` are called; nothing is loaded yet."""
        self.failure: str | None = None
        self.totals = Totals()
        self.state = State.LOADING
        self._load = load
        self._limits = limits
        self._changed = changed
        self._wake = threading.Condition()
        self._waiting: deque[PendingCompletion] = deque()
        self._running: list[_ServedSlot] = []
        self._num_slots = limits.max_concurrent
        self._stop_at = float("inf")
        self._usual_seconds = _FIRST_GUESS_SECONDS
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)

    def start(self) -> None:
        """Begin to load the model."""
        self._thread.start()

    def submit(self, completions: Sequence[PendingCompletion]) -> None:
        """Put completions into the queue, all or none of them.

        Raises:
            RequestRefusedError: The model is not there, too many wait already, or those that wait take longer than a
                request may.
        """
        with self._wake:
            if self.state is not State.READY:
                raise _not_ready("is loading the model" if self.state is State.LOADING else "is stopping")
            num_open = len(self._waiting) + len(self._running)
            seconds = self._usual_seconds * len(self._waiting) / self._num_slots
            is_late = bool(self.totals.ended) and seconds > self._limits.timeout
            if is_late or num_open + len(completions) > self._num_slots + self._limits.max_waiting:
                wait = max(1, round(seconds))
                message = f"Too many requests are waiting. Ask again in {wait} seconds."
                headers = {"Retry-After": str(wait)}
                raise RequestRefusedError(429, message, code="rate_limit_exceeded", headers=headers)
            self._waiting.extend(completions)
            self._wake.notify()

    def count(self) -> tuple[int, int]:
        """Return how many completions wait, and how many are being written."""
        with self._wake:
            return len(self._waiting), len(self._running)

    def stop(self, within: float) -> None:
        """Take no more, and end within so many seconds, in which running completions may go on."""
        with self._wake:
            self._stop_at = min(self._stop_at, time.monotonic() + within)
            if self.state is not State.ENDED:
                self.state = State.STOPPING
            self._wake.notify()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._work(self._load())
        except MensError as error:
            self.failure = str(error)
        finally:
            with self._wake:
                if self.failure is None and self.state is not State.STOPPING:
                    self.failure = "The thread that writes answers has died; its last words stand above."
                self.state = State.ENDED
                left = [*self._waiting, *(slot.completion for slot in self._running)]
                self._waiting, self._running = deque(), []
            for completion in left:
                completion.listen(Failed(_not_ready("is stopping")))
            self._changed(State.ENDED)

    def _work(self, loaded: Loaded) -> None:
        engine = loaded.new_engine(self._limits.max_concurrent)
        self._num_slots = engine.num_slots
        with self._wake:
            if self.state is State.LOADING:
                self.state = State.READY
        if self.state is State.READY:
            self._changed(State.READY)
        while self._admit(engine, loaded):
            try:
                engine.step()
            except RuntimeError as error:  # memory that does not suffice, in most cases
                engine.clear()
                self._fail(error)
            for slot in [slot for slot in self._running if slot.end is not None]:
                self._running.remove(slot)
                self._finish(slot, engine, loaded)

    def _admit(self, engine: SlotEngine, loaded: Loaded) -> bool:
        """Move completions that wait into free slots, or wait for some; return False when it is time to end."""
        with self._wake:
            while not (self._waiting or self._running):
                if self.state is State.STOPPING:
                    return False
                self._wake.wait()
            now = time.monotonic()
            if now >= self._stop_at:
                return False
            waiting, self._waiting = self._waiting, deque()
            for completion in waiting:
                if completion.is_cancelled:
                    continue
                if now >= completion.request.deadline:
                    completion.listen(self._lateness())
                elif len(self._running) < self._num_slots:
                    is_constrained = completion.request.syntax is Syntax.CONSTRAINED
                    self._start(_new_slot(loaded, completion, is_constrained=is_constrained), engine)
                else:
                    self._waiting.append(completion)
        return True

    def _start(self, slot: _ServedSlot, engine: SlotEngine) -> None:
        self._running.append(slot)
        engine.admit(slot)

    def _finish(self, slot: _ServedSlot, engine: SlotEngine, loaded: Loaded) -> None:
        """Tell the client how a completion ended; a first try that is no program is generated again."""
        if slot.end == "late":
            slot.completion.listen(self._lateness())
        if slot.end not in {"stop", "length"}:
            return
        result = slot.to_result(slot.end)
        if slot.is_held:
            stands = not (slot.is_first_try or slot.is_second_try) or slot.completion.request.is_met_by(result.text)
            if slot.is_first_try and not stands:
                second = _new_slot(loaded, slot.completion, is_constrained=True)
                second.num_before = len(slot.tokens)
                self._start(second, engine)
                return
            if withheld := _reason_against(result, slot.completion.request.threshold, stands=stands):
                result = replace(result, text="", tokens=(), withheld=withheld)
            slot.completion.listen(Piece(result.text, result.tokens))
        weight = _NEWEST if self.totals.ended else 1.0
        self._usual_seconds += weight * (result.prompt_seconds + result.seconds - self._usual_seconds)
        self.totals.add(len(slot.prompt), result)
        slot.completion.listen(result)

    def _fail(self, error: RuntimeError) -> None:
        """End the completions that the model cannot go on with."""
        why = RequestRefusedError(500, f"The model could not go on: {str(error)[:300]}.", code="generation_failed")
        failed = [slot for slot in self._running if slot.end is None]
        self._running = [slot for slot in self._running if slot.end is not None]
        for slot in failed:
            slot.completion.listen(Failed(why))

    def _lateness(self) -> Failed:
        advice = "Ask for fewer tokens, or serve with a longer --timeout."
        message = f"No complete answer within {self._limits.timeout:g} seconds. {advice}"
        # A client that repeats the request by itself would wait as long again.
        return Failed(RequestRefusedError(504, message, code="timeout", headers={"x-should-retry": "false"}))


def _not_ready(what: str) -> RequestRefusedError:
    return RequestRefusedError(503, f"The server {what}. Ask again.", code="unavailable", headers={"Retry-After": "2"})


def _reason_against(result: GenerationResult, threshold: float | None, *, stands: bool) -> Withheld | None:
    """Return why a piece at a cursor is not sent; None where it is."""
    if not stands:
        return Withheld.DOES_NOT_STAND
    is_unsure = threshold is not None and result.likelihood is not None and result.likelihood < threshold
    return Withheld.UNSURE if is_unsure else None


def _new_slot(loaded: Loaded, completion: PendingCompletion, *, is_constrained: bool) -> _ServedSlot:
    request = completion.request
    room = request.max_tokens or 0
    constraint: Constraint | InsertConstraint | None = None
    if is_constrained and request.suffix is not None:
        prefix = request.text or ""
        constraint = InsertConstraint(loaded.tokenizer, loaded.stop, Mode.SOURCE, prefix, request.suffix)
    elif is_constrained:
        constraint = Constraint(loaded.tokenizer, loaded.stop, Mode.SOURCE, room, names=request.names)
    return _ServedSlot(
        request.prompt,
        Sampler(request.temperature or 0.0, request.top_p or 1.0, f"{request.seed}:{completion.number}"),
        room,
        constraint,
        None if request.threshold is None and not request.is_chosen else 0.0,
        request.deadline,
        completion=completion,
        decode=loaded.decode,
        stream=TextStream(loaded.decode, request.stop),
        begun=time.monotonic(),
    )
