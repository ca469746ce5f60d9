"""The queue of completions and the thread that generates them, some at once; cancelled and late ones are dropped."""

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
from mens_pipeline.serving.generation import Completion, Failed, GenerationResult, Piece, TextStream, Token
from mens_pipeline.serving.http import RequestRefusedError

if TYPE_CHECKING:
    import torch

_WAITING_PER_SLOT: Final = 4
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


@dataclass(eq=False, slots=True)
class _Slot:
    """A completion that is being generated.

    Attributes:
        num_before: Tokens of a first try that was no program.
        pieces: What has become certain of it, in order.
        unsent: Tokens since the last piece.
        first_token: When it came, on the monotonic clock.
    """

    completion: Completion
    prompt: Prompt
    sampler: Sampler
    stream: TextStream
    begun: float
    constraint: Constraint | None
    num_before: int = 0
    pieces: list[Piece] = field(default_factory=list)
    unsent: list[Token] = field(default_factory=list)
    first_token: float = 0.0
    tokens: list[int] = field(default_factory=list)
    log_probability: float = 0.0

    @property
    def is_first_try(self) -> bool:
        """Whether it is generated again, constrained, unless it is a program; its pieces are held back until then."""
        return self.completion.request.syntax is Syntax.FALLBACK and self.constraint is None

    @property
    def is_full(self) -> bool:
        """Whether it has as many tokens as it may."""
        return len(self.tokens) >= (self.completion.request.max_tokens or 0)

    def draw(self, scores: "torch.Tensor", loaded: Loaded) -> int:
        """Take the next token; the one that ends the turn is not reported."""
        token = self.sampler.choose(scores) if self.constraint is None else self.constraint.choose(scores, self.sampler)
        self.tokens.append(token)
        request = self.completion.request
        if request.is_chosen:
            self.log_probability += log_probability(scores, token)
        if request.num_likeliest is not None and token not in loaded.stop:
            others = likeliest(scores, request.num_likeliest) if request.num_likeliest else ()
            texts = tuple((loaded.decode([other]), value) for other, value in others)
            self.unsent.append(Token(loaded.decode([token]), log_probability(scores, token), texts))
        return token

    def send(self, text: str, *, is_last: bool) -> None:
        """Pass on what has become certain, with its tokens."""
        if not text and not (is_last and self.unsent):
            return
        self.pieces.append(Piece(text, tuple(self.unsent)))
        self.unsent.clear()
        if not self.is_first_try:
            self.completion.listen(self.pieces[-1])

    def to_result(self, reason: Literal["stop", "length"]) -> GenerationResult:
        """Return the result of a completion that has ended now."""
        now = time.monotonic()
        is_scored = self.completion.request.is_chosen
        return GenerationResult(
            text="".join(piece.text for piece in self.pieces),
            tokens=tuple(chain(*(piece.tokens for piece in self.pieces))),
            reason=reason,
            num_tokens=self.num_before + len(self.tokens),
            prompt_seconds=self.first_token - self.begun,
            seconds=now - self.first_token,
            is_constrained=self.constraint is not None,
            likelihood=self.log_probability / len(self.tokens) if is_scored else None,
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
        self._waiting: deque[Completion] = deque()
        self._reading: deque[_Slot] = deque()
        self._writing: list[_Slot] = []
        self._num_slots = limits.max_concurrent
        self._stop_at = float("inf")
        self._usual_seconds = _FIRST_GUESS_SECONDS
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)

    def start(self) -> None:
        """Begin to load the model."""
        self._thread.start()

    def submit(self, completions: Sequence[Completion]) -> None:
        """Put completions into the queue, all or none of them.

        Raises:
            RequestRefusedError: The model is not there, too many wait already, or those that wait take longer than a
                request may.
        """
        with self._wake:
            if self.state is not State.READY:
                raise _not_ready("is loading the model" if self.state is State.LOADING else "is stopping")
            num_open = len(self._waiting) + len(self._reading) + len(self._writing)
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
                left = [*self._waiting, *(slot.completion for slot in (*self._reading, *self._writing))]
                self._waiting, self._reading, self._writing = deque(), deque(), []
            for completion in left:
                completion.listen(Failed(_not_ready("is stopping")))
            self._changed(State.ENDED)

    def _work(self, loaded: Loaded) -> None:
        import torch

        batch = Batch(loaded.model)
        self._num_slots = self._limits.max_concurrent if can_join(Prompt(loaded.model, (0,)).cache) else 1
        with self._wake:
            if self.state is State.LOADING:
                self.state = State.READY
        if self.state is State.READY:
            self._changed(State.READY)
        with torch.inference_mode():
            while self._admit(loaded):
                self._drop(batch)
                try:
                    self._read(loaded, batch)
                    self._write(loaded, batch)
                except RuntimeError as error:  # memory that does not suffice, in most cases
                    self._fail_all(error)
                    batch = Batch(loaded.model)

    def _admit(self, loaded: Loaded) -> bool:
        """Move completions that wait into free slots, or wait for some; return False when it is time to end."""
        with self._wake:
            while not (self._waiting or self._reading or self._writing):
                if self.state is State.STOPPING:
                    return False
                self._wake.wait()
            if time.monotonic() >= self._stop_at:
                return False
            while self._waiting and len(self._reading) + len(self._writing) < self._num_slots:
                completion = self._waiting.popleft()
                is_constrained = completion.request.syntax is Syntax.CONSTRAINED
                self._reading.append(_new_slot(loaded, completion, is_constrained=is_constrained))
        return True

    def _drop(self, batch: Batch) -> None:
        """Drop completions that are cancelled or out of time."""
        now = time.monotonic()

        def stays(completion: Completion) -> bool:
            if now >= completion.request.deadline and not completion.is_cancelled:
                advice = "Ask for fewer tokens, or serve with a longer --timeout."
                message = f"No complete answer within {self._limits.timeout:g} seconds. {advice}"
                # Whoever asks again by itself would wait as long again.
                headers = {"x-should-retry": "false"}
                completion.listen(Failed(RequestRefusedError(504, message, code="timeout", headers=headers)))
                return False
            return not completion.is_cancelled

        with self._wake:
            self._waiting = deque(completion for completion in self._waiting if stays(completion))
        self._reading = deque(slot for slot in self._reading if stays(slot.completion))
        self._keep(batch, [slot for slot in self._writing if stays(slot.completion)])

    def _read(self, loaded: Loaded, batch: Batch) -> None:
        """Read one piece of one prompt."""
        if not self._reading:
            return
        slot = self._reading[0]
        scores = slot.prompt.read()
        if scores is None:
            self._reading.rotate(-1)
            return
        slot.first_token = time.monotonic()
        self._reading.popleft()
        if self._take_token(slot, scores, loaded):
            batch.join(slot.prompt)
            self._writing.append(slot)

    def _write(self, loaded: Loaded, batch: Batch) -> None:
        """Write one token of each answer."""
        if not self._writing:
            return
        scores = batch.step([slot.tokens[-1] for slot in self._writing])
        going = zip(self._writing, scores, strict=True)
        self._keep(batch, [slot for slot, row in going if self._take_token(slot, row, loaded)])

    def _keep(self, batch: Batch, slots: list[_Slot]) -> None:
        if len(slots) < len(self._writing):
            batch.keep([place for place, slot in enumerate(self._writing) if slot in slots])
        self._writing = slots

    def _take_token(self, slot: _Slot, scores: "torch.Tensor", loaded: Loaded) -> bool:
        """Draw a token of a completion, and pass on what it makes certain; return whether the completion goes on."""
        token = slot.draw(scores, loaded)
        ends_turn = token in loaded.stop
        text = "" if ends_turn else slot.stream.feed(token)
        if ends_turn or slot.is_full:
            text += slot.stream.end()
        is_over = ends_turn or slot.stream.is_stopped or slot.is_full
        slot.send(text, is_last=is_over)
        if not is_over:
            return True
        result = slot.to_result("stop" if ends_turn or slot.stream.is_stopped else "length")
        if slot.is_first_try:
            if not is_program(result.text, Mode.SOURCE):
                second = _new_slot(loaded, slot.completion, is_constrained=True)
                second.num_before = len(slot.tokens)
                self._reading.append(second)
                return False
            slot.completion.listen(Piece(result.text, result.tokens))
        weight = _NEWEST if self.totals.ended else 1.0
        self._usual_seconds += weight * (result.prompt_seconds + result.seconds - self._usual_seconds)
        self.totals.add(len(slot.completion.request.prompt), result)
        slot.completion.listen(result)
        return False

    def _fail_all(self, error: RuntimeError) -> None:
        why = RequestRefusedError(500, f"The model could not go on: {str(error)[:300]}.", code="generation_failed")
        slots, self._reading, self._writing = [*self._reading, *self._writing], deque(), []
        for slot in slots:
            slot.completion.listen(Failed(why))


def _not_ready(what: str) -> RequestRefusedError:
    return RequestRefusedError(503, f"The server {what}. Ask again.", code="unavailable", headers={"Retry-After": "2"})


def _new_slot(loaded: Loaded, completion: Completion, *, is_constrained: bool) -> _Slot:
    request = completion.request
    constraint = None
    if is_constrained:
        room = request.max_tokens or 0
        constraint = Constraint(loaded.tokenizer, loaded.stop, Mode.SOURCE, room, names=request.names)
    return _Slot(
        completion,
        Prompt(loaded.model, request.prompt),
        Sampler(request.temperature or 0.0, request.top_p or 1.0, f"{request.seed}:{completion.number}"),
        TextStream(loaded.decode, request.stop),
        time.monotonic(),
        constraint,
    )
