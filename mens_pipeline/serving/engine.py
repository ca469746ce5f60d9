"""The thread that writes answers: takes them in order, writes some at once, drops those that nobody awaits."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

from mens_pipeline.errors import MensError
from mens_pipeline.inference.constraint import Constraint
from mens_pipeline.inference.generation import is_program
from mens_pipeline.inference.sampling import Sampler, Syntax, likeliest, log_probability
from mens_pipeline.language import Mode
from mens_pipeline.serving.batch import Batch, Prompt, can_join
from mens_pipeline.serving.body import RequestRefusedError
from mens_pipeline.serving.reply import Drawn, Ended, Failed, Piece, Reply, TextStream

if TYPE_CHECKING:
    import torch

_WAITING_FOR_EACH_PLACE: Final = 4
_FIRST_GUESS_SECONDS: Final = 5.0
_NEWEST: Final = 0.2
"""The weight of the newest answer in how long one takes."""


class State(StrEnum):
    """State of the generation thread."""

    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that can answer, in evaluation mode; any of the ids of `stop` ends a turn."""

    model: Any
    stop: frozenset[int]
    tokenizer: Any

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode some tokens to text; control tokens among them have none."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server; its timeout is in seconds, from a request to its last token."""

    max_concurrent: int
    max_request_bytes: int
    timeout: float
    max_new_tokens: int

    @property
    def max_waiting(self) -> int:
        """Answers that wait for a place."""
        return _WAITING_FOR_EACH_PLACE * self.max_concurrent


@dataclass(slots=True)
class Totals:
    """Counters of completions that ended in an engine: tokens of prompts, tokens written, and how they ended.

    Attributes:
        ended: Decoding (`free`, `constrained`) and reason (`stop`, `length`) -> completions.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, num_prompt: int, ended: Ended) -> None:
        """Count a completion."""
        self.prompt_tokens += num_prompt
        self.completion_tokens += ended.num_tokens
        self.ended["constrained" if ended.is_constrained else "free", ended.reason] += 1


@dataclass(eq=False, slots=True)
class _Seat:
    """A reply that has a place; what is held back is given when it is a program."""

    reply: Reply
    prompt: Prompt
    sampler: Sampler
    text: TextStream
    begun: float
    constraint: Constraint | None
    num_before: int = 0
    held: list[Piece] = field(default_factory=list)
    untold: list[Drawn] = field(default_factory=list)
    written: float = 0.0
    tokens: list[int] = field(default_factory=list)
    log_probability: float = 0.0

    def draw(self, scores: "torch.Tensor", loaded: Loaded) -> int:
        """Take the next token; the one that ends the turn is none of the answer."""
        token = self.sampler.choose(scores) if self.constraint is None else self.constraint.choose(scores, self.sampler)
        self.tokens.append(token)
        if self.reply.is_scored:
            self.log_probability += log_probability(scores, token)
        if self.reply.num_likeliest is not None and token not in loaded.stop:
            others = likeliest(scores, self.reply.num_likeliest) if self.reply.num_likeliest else ()
            told = tuple((loaded.decode([other]), value) for other, value in others)
            self.untold.append(Drawn(loaded.decode([token]), log_probability(scores, token), told))
        return token

    def give(self, text: str, *, is_last: bool, is_held: bool) -> None:
        """Pass on what has become certain, with its tokens; what is held waits until it is a program."""
        if not text and not (is_last and self.untold):
            return
        piece = Piece(text, tuple(self.untold))
        self.untold.clear()
        if is_held:
            self.held.append(piece)
        else:
            self.reply.listen(piece)

    @property
    def likelihood(self) -> float | None:
        """Mean log-probability of its tokens; None where it was not asked for."""
        return self.log_probability / len(self.tokens) if self.reply.is_scored else None


class Engine:
    """Writes answers in a thread of its own."""

    def __init__(self, load: Callable[[], Loaded], limits: Limits, changed: Callable[[State], None]) -> None:
        """Prepare the thread, in which the model is loaded and each change of state is told; nothing is loaded yet."""
        self.failure: str | None = None
        self.totals = Totals()
        self.state = State.LOADING
        self._load = load
        self._limits = limits
        self._changed = changed
        self._wake = threading.Condition()
        self._waiting: deque[Reply] = deque()
        self._reading: deque[_Seat] = deque()
        self._writing: list[_Seat] = []
        self._places = limits.max_concurrent
        self._stop_at = float("inf")
        self._usual_seconds = _FIRST_GUESS_SECONDS
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)

    def start(self) -> None:
        """Begin to load the model."""
        self._thread.start()

    def submit(self, replies: Sequence[Reply]) -> None:
        """Ask for answers, all or none of them.

        Raises:
            RequestRefusedError: The model is not there, too many wait already, or those that wait take longer than a
                request may.
        """
        with self._wake:
            if self.state is not State.READY:
                raise _not_ready("is loading the model" if self.state is State.LOADING else "is stopping")
            num_open = len(self._waiting) + len(self._reading) + len(self._writing)
            seconds = self._usual_seconds * len(self._waiting) / self._places
            is_late = bool(self.totals.ended) and seconds > self._limits.timeout
            if is_late or num_open + len(replies) > self._places + self._limits.max_waiting:
                wait = max(1, round(seconds))
                message = f"Too many requests are waiting. Ask again in {wait} seconds."
                headers = {"Retry-After": str(wait)}
                raise RequestRefusedError(429, message, code="rate_limit_exceeded", headers=headers)
            self._waiting.extend(replies)
            self._wake.notify()

    def queue(self) -> tuple[int, int]:
        """Return how many completions wait, and how many are being written."""
        with self._wake:
            return len(self._waiting), len(self._reading) + len(self._writing)

    def stop(self, within: float) -> None:
        """Take no more, and end within so many seconds, in which answers in the making may go on."""
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
                left = [*self._waiting, *(seat.reply for seat in (*self._reading, *self._writing))]
                self._waiting, self._reading, self._writing = deque(), deque(), []
            for reply in left:
                reply.listen(Failed(_not_ready("is stopping")))
            self._changed(State.ENDED)

    def _work(self, loaded: Loaded) -> None:
        import torch

        batch = Batch(loaded.model)
        self._places = self._limits.max_concurrent if can_join(Prompt(loaded.model, (0,)).cache) else 1
        with self._wake:
            if self.state is State.LOADING:
                self.state = State.READY
        if self.state is State.READY:
            self._changed(State.READY)
        with torch.inference_mode():
            while self._seated(loaded):
                self._let_go(batch)
                try:
                    self._read(loaded, batch)
                    self._write(loaded, batch)
                except RuntimeError as error:  # memory that does not suffice, in most cases
                    self._fail_seated(error)
                    batch = Batch(loaded.model)

    def _seated(self, loaded: Loaded) -> bool:
        """Give free places to those who wait, or wait for them; return whether to go on, or it is time to end."""
        with self._wake:
            while not (self._waiting or self._reading or self._writing):
                if self.state is State.STOPPING:
                    return False
                self._wake.wait()
            if time.monotonic() >= self._stop_at:
                return False
            while self._waiting and len(self._reading) + len(self._writing) < self._places:
                reply = self._waiting.popleft()
                self._reading.append(_seat(loaded, reply, is_constrained=reply.syntax is Syntax.CONSTRAINED))
        return True

    def _let_go(self, batch: Batch) -> None:
        """Drop what nobody waits for, and what is out of time."""
        now = time.monotonic()

        def stays(reply: Reply) -> bool:
            if now >= reply.deadline and not reply.is_gone:
                advice = "Ask for fewer tokens, or serve with a longer --timeout."
                message = f"No complete answer within {self._limits.timeout:g} seconds. {advice}"
                # Whoever asks again by itself would wait as long again.
                headers = {"x-should-retry": "false"}
                reply.listen(Failed(RequestRefusedError(504, message, code="timeout", headers=headers)))
                return False
            return not reply.is_gone

        with self._wake:
            self._waiting = deque(reply for reply in self._waiting if stays(reply))
        self._reading = deque(seat for seat in self._reading if stays(seat.reply))
        self._keep(batch, [seat for seat in self._writing if stays(seat.reply)])

    def _read(self, loaded: Loaded, batch: Batch) -> None:
        """Read one piece of one prompt."""
        if not self._reading:
            return
        seat = self._reading[0]
        scores = seat.prompt.read()
        if scores is None:
            self._reading.rotate(-1)
            return
        seat.written = time.monotonic()
        self._reading.popleft()
        if self._goes_on(seat, scores, loaded):
            batch.join(seat.prompt)
            self._writing.append(seat)

    def _write(self, loaded: Loaded, batch: Batch) -> None:
        """Write one token of each answer."""
        if not self._writing:
            return
        scores = batch.step([seat.tokens[-1] for seat in self._writing])
        going = zip(self._writing, scores, strict=True)
        self._keep(batch, [seat for seat, row in going if self._goes_on(seat, row, loaded)])

    def _keep(self, batch: Batch, seats: list[_Seat]) -> None:
        if len(seats) < len(self._writing):
            batch.keep([place for place, seat in enumerate(self._writing) if seat in seats])
        self._writing = seats

    def _goes_on(self, seat: _Seat, scores: "torch.Tensor", loaded: Loaded) -> bool:
        """Draw a token, and say what it comes to."""
        token, is_constrained = seat.draw(scores, loaded), seat.constraint is not None
        reply, ends_turn = seat.reply, token in loaded.stop
        piece = "" if ends_turn else seat.text.feed(token)
        is_full = len(seat.tokens) >= reply.max_new_tokens
        if ends_turn or is_full:
            piece += seat.text.end()
        is_first_try = reply.syntax is Syntax.FALLBACK and not is_constrained
        is_over = ends_turn or seat.text.is_stopped or is_full
        seat.give(piece, is_last=is_over, is_held=is_first_try)
        if not is_over:
            return True
        now = time.monotonic()
        if is_first_try:
            first = Piece("".join(held.text for held in seat.held), tuple(chain(*(held.tokens for held in seat.held))))
            if not is_program(first.text, Mode.SOURCE):
                second = _seat(loaded, reply, is_constrained=True)
                second.num_before = len(seat.tokens)
                self._reading.append(second)
                return False
            reply.listen(first)
        weight = _NEWEST if self.totals.ended else 1.0
        self._usual_seconds += weight * (now - seat.begun - self._usual_seconds)
        reason: Literal["stop", "length"] = "stop" if ends_turn or seat.text.is_stopped else "length"
        num_tokens = seat.num_before + len(seat.tokens)
        times = (seat.written - seat.begun, now - seat.written)
        ended = Ended(reason, num_tokens, *times, is_constrained, seat.likelihood)
        self.totals.add(len(reply.prompt), ended)
        reply.listen(ended)
        return False

    def _fail_seated(self, error: RuntimeError) -> None:
        why = RequestRefusedError(500, f"The model could not go on: {str(error)[:300]}.", code="generation_failed")
        seats, self._reading, self._writing = [*self._reading, *self._writing], deque(), []
        for seat in seats:
            seat.reply.listen(Failed(why))


def _not_ready(what: str) -> RequestRefusedError:
    return RequestRefusedError(503, f"The server {what}. Ask again.", code="unavailable", headers={"Retry-After": "2"})


def _seat(loaded: Loaded, reply: Reply, *, is_constrained: bool) -> _Seat:
    return _Seat(
        reply,
        Prompt(loaded.model, reply.prompt),
        Sampler(reply.temperature, reply.top_p, reply.start),
        TextStream(loaded.decode, reply.stop),
        time.monotonic(),
        Constraint(loaded.tokenizer, loaded.stop, Mode.SOURCE, reply.max_new_tokens, names=reply.names)
        if is_constrained
        else None,
    )
