"""The queue of completions, and the thread that generates several at once; cancelled and late ones are dropped.

Pieces at a cursor have their own slots and get most of the steps, since a programmer waits for them.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from mens_pipeline.errors import MensError
from mens_pipeline.inference.engine import Engine
from mens_pipeline.serving.generation import Failed, GenerationResult, PendingCompletion, Piece, Withheld
from mens_pipeline.serving.http import RequestRefusedError
from mens_pipeline.serving.slot import ServedSlot, new_slot

_WAITING_PER_SLOT: Final = 4
_PIECE: Final = 512
"""Tokens of a prompt that are read at once; between the pieces of a long prompt, other completions continue."""
_PIECE_STEPS: Final = 8
"""While pieces at a cursor are written, the other completions get one out of this number of steps."""
_FIRST_GUESS_SECONDS: Final = 5.0
_NEWEST: Final = 0.2  # weight of the newest completion in the moving average of seconds


class State(StrEnum):
    """State of the generation thread."""

    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model in evaluation mode; each id in `stop` ends a turn."""

    model: Any
    stop: frozenset[int]
    tokenizer: Any

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode tokens to text, without control tokens."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def new_engine(self, num_slots: int) -> Engine[ServedSlot]:
        """Return an engine for `num_slots` completions at once, or fewer."""
        return Engine[ServedSlot](self.model, self.stop, num_slots, piece=_PIECE)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server; `timeout` is in seconds, from a request to its last token."""

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
    """Counters of ended completions; `ended` counts them by decoding (`free`, `constrained`) and reason."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    computed_tokens: int = 0
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, num_prompt: int, result: GenerationResult) -> None:
        """Count a completion, with the tokens of its prompt."""
        self.prompt_tokens += num_prompt
        self.completion_tokens += result.num_tokens
        self.computed_tokens += result.num_computed
        self.ended["constrained" if result.is_constrained else "free", result.reason] += 1


class GenerationQueue:
    """Generates completions in a separate thread, in the order of submission; pieces at a cursor go first."""

    def __init__(self, load: Callable[[], Loaded], limits: ServerLimits, changed: Callable[[State], None]) -> None:
        self.failure: str | None = None
        self.totals = Totals()
        self.state = State.LOADING
        self._load = load
        self._limits = limits
        self._changed = changed
        self._wake = threading.Condition()
        self._waiting: deque[PendingCompletion] = deque()
        self._running: list[ServedSlot] = []
        self._num_slots = limits.max_concurrent
        self._stop_at = float("inf")
        self._usual_seconds = _FIRST_GUESS_SECONDS
        self._thread = threading.Thread(target=self._run, name="completions", daemon=True)

    def start(self) -> None:
        """Start to load the model."""
        self._thread.start()

    def submit(self, completions: Sequence[PendingCompletion]) -> None:
        """Add all completions of a request to the queue, or none of them; pieces at a cursor and others do not compete.

        `RequestRefusedError` if the model is not loaded, too many completions wait, or they would wait too long.
        """
        with self._wake:
            if self.state is not State.READY:
                raise _not_ready("is loading the model" if self.state is State.LOADING else "is stopping")
            is_text = completions[0].request.around is None
            num_waiting, num_running = (
                sum((one.request.around is None) is is_text for one in found)
                for found in (self._waiting, [slot.completion for slot in self._running])
            )
            seconds = self._usual_seconds * num_waiting / self._num_slots
            is_late = bool(self.totals.ended) and seconds > self._limits.timeout
            num_open = num_waiting + num_running + len(completions)
            if is_late or num_open > self._num_slots + self._limits.max_waiting:
                wait = max(1, round(seconds))
                message = f"Too many requests are waiting. Retry in {wait} seconds."
                headers = {"Retry-After": str(wait)}
                raise RequestRefusedError(429, message, code="rate_limit_exceeded", headers=headers)
            self._waiting.extend(completions)
            self._wake.notify()

    def count(self) -> tuple[int, int]:
        """Return the numbers of waiting completions and of running ones."""
        with self._wake:
            return len(self._waiting), len(self._running)

    def stop(self, within: float) -> None:
        """Accept no more completions, and end within `within` seconds."""
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
                    self.failure = "The completion thread died; its error is above. Restart the server."
                self.state = State.ENDED
                left = [*self._waiting, *(slot.completion for slot in self._running)]
                self._waiting, self._running = deque(), []
            for completion in left:
                completion.listen(Failed(_not_ready("is stopping")))
            self._changed(State.ENDED)

    def _work(self, loaded: Loaded) -> None:
        pieces, others = (loaded.new_engine(self._limits.max_concurrent) for _ in range(2))
        self._num_slots, num_steps = others.num_slots, 0
        with self._wake:
            if self.state is State.LOADING:
                self.state = State.READY
        if self.state is State.READY:
            self._changed(State.READY)
        while self._admit(pieces, others, loaded):
            num_steps += 1
            is_turn_of_others = not pieces.slots or (others.slots and num_steps % _PIECE_STEPS == 0)
            try:
                (others if is_turn_of_others else pieces).step()
            except RuntimeError as error:  # out of memory, in most cases
                pieces.clear()
                others.clear()
                self._fail(error)
            for slot in [slot for slot in self._running if slot.end is not None]:
                self._running.remove(slot)
                self._finish(slot, loaded)

    def _admit(self, pieces: Engine[ServedSlot], others: Engine[ServedSlot], loaded: Loaded) -> bool:
        with self._wake:
            while not (self._waiting or self._running):
                if self.state is State.STOPPING:
                    return False
                self._wake.wait()
            now = time.monotonic()
            if now >= self._stop_at:
                return False
            self._waiting = deque(one for one in self._waiting if not one.is_cancelled)
            waiting = tuple(self._waiting)
        for completion in waiting:  # without the lock, since a slot may take a second to build
            engine = others if completion.request.around is None else pieces
            if now >= completion.request.deadline:
                completion.listen(self._lateness())
            elif engine.has_room:
                slot = new_slot(loaded, completion)
                self._running.append(slot)
                engine.admit(slot)
            else:
                continue
            with self._wake:
                self._waiting.remove(completion)
        return True

    def _finish(self, slot: ServedSlot, loaded: Loaded) -> None:
        if slot.end not in {"stop", "length", "late"}:
            return
        result = slot.to_result()
        if result is None:
            slot.completion.listen(self._lateness())
            return
        if slot.is_held:
            result = _withhold(result, slot, loaded)
            if slot.is_given_up and not result.text and result.withheld is None:
                result = replace(result, withheld=Withheld.DOES_NOT_PARSE)
            slot.completion.listen(Piece(result.text, result.tokens))
        weight = _NEWEST if self.totals.ended else 1.0
        self._usual_seconds += weight * (result.prompt_seconds + result.seconds - self._usual_seconds)
        self.totals.add(len(slot.prompt), result)
        slot.completion.listen(result)

    def _fail(self, error: RuntimeError) -> None:
        why = RequestRefusedError(500, f"The completion failed: {str(error)[:300]}.", code="generation_failed")
        failed = [slot for slot in self._running if slot.end is None]
        self._running = [slot for slot in self._running if slot.end is not None]
        for slot in failed:
            slot.completion.listen(Failed(why))

    def _lateness(self) -> Failed:
        advice = "Request fewer tokens, or raise --timeout of the server."
        message = f"The completion did not finish within {self._limits.timeout:g} seconds. {advice}"
        # A client that retries automatically would wait as long again.
        return Failed(RequestRefusedError(504, message, code="timeout", headers={"x-should-retry": "false"}))


def _not_ready(why: str) -> RequestRefusedError:
    return RequestRefusedError(503, f"The server {why}. Retry later.", code="unavailable", headers={"Retry-After": "2"})


def _withhold(result: GenerationResult, slot: ServedSlot, loaded: Loaded) -> GenerationResult:
    """Cut a piece at a cursor to whole lines that fit there, which ends it (`stop`), or withhold it."""
    request, around = slot.completion.request, slot.completion.request.around if slot.is_checked else None
    text, withheld = result.text if result.text.strip() else "", None
    if around is not None and text:
        whole = around.indent(text)
        fitting = around.cut(whole)
        text = whole if fitting is None else fitting
        if text != whole:
            result = replace(
                result, reason="stop", num_tokens=len(loaded.tokenizer.encode(text, add_special_tokens=False))
            )
        if fitting is None:
            withheld = Withheld.DOES_NOT_PARSE
        elif not request.shows_errors and around.find_error(text) is not None:
            withheld = Withheld.WRONG_NAME
    threshold, likelihood = request.threshold, result.likelihood
    if withheld is None and threshold is not None and likelihood is not None and likelihood < threshold:
        withheld = Withheld.UNSURE
    if withheld is not None:
        return replace(result, text="", tokens=(), num_tokens=0, withheld=withheld)
    return result if text == result.text else replace(result, text=text, tokens=())
