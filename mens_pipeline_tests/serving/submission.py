"""A generation queue that runs in a thread, and a completion submitted to it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mens_pipeline.inference.generation import Syntax
from mens_pipeline.serving.generation import Event, GenerationRequest, PendingCompletion, Piece, PreparedRequest
from mens_pipeline.serving.queue import GenerationQueue, Loaded, ServerLimits, State


class Submission:
    """One completion and its events; `fields` are those of its request."""

    def __init__(self, max_tokens: int = 5, seconds: float = 60.0, **fields: Any) -> None:
        self.events: list[Event] = []
        self.is_over = threading.Event()
        values: dict[str, Any] = {"asked": GenerationRequest("mens"), "prompt": (1,), "syntax": Syntax.FREE, "seed": 0}
        request = {**values, "max_tokens": max_tokens, "deadline": time.monotonic() + seconds, **fields}
        self.completion = PendingCompletion(PreparedRequest(**request), 0, self._listen)

    def _listen(self, event: Event) -> None:
        self.events.append(event)
        if not isinstance(event, Piece):
            self.is_over.set()

    def end(self) -> Event:
        """Wait for its last event."""
        assert self.is_over.wait(60)
        return self.events[-1]


@contextmanager
def run_queue(load: Callable[[], Loaded], limits: ServerLimits) -> Iterator[tuple[GenerationQueue, list[State]]]:
    """Run a queue until its model is loaded or fails to load; yield it with its states. It ends with the block."""
    states: list[State] = []
    is_ready = threading.Event()

    def changed(state: State) -> None:
        states.append(state)
        is_ready.set()

    engine = GenerationQueue(load, limits, changed)
    engine.start()
    assert is_ready.wait(60)
    try:
        yield engine, states
    finally:
        engine.stop(0)
        engine.join(30)
        assert engine.state is State.ENDED
