"""The generation thread: when it rejects requests, how it survives failures, how it ends."""

import threading
import time
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.serving import queue
from mens_pipeline.serving.generation import Failed, GenerationResult
from mens_pipeline.serving.http import RequestRefusedError
from mens_pipeline.serving.queue import GenerationQueue, Loaded, ServerLimits, State
from mens_pipeline_tests.evaluation.hybrid import hybrid_model
from mens_pipeline_tests.serving.submission import Submission, run_queue

_LIMITS = ServerLimits(2, 1_000, 60.0, 100)


class _Bytes:
    """A tokenizer of bytes."""

    @staticmethod
    def decode(tokens: Any, **_options: Any) -> str:
        """The text of some tokens."""
        return bytes(min(token, 255) for token in tokens).decode("latin-1")


def _load() -> Loaded:
    return Loaded(hybrid_model(), frozenset(), _Bytes())


def test_completions_run_to_their_limit() -> None:
    with run_queue(_load, _LIMITS) as (engine, states):
        asked = [Submission(number) for number in (1, 5, 9)]
        engine.submit([one.completion for one in asked])
        ends = [one.end() for one in asked]

    assert [(end.reason, end.num_tokens) for end in ends if isinstance(end, GenerationResult)] == [
        ("length", 1),
        ("length", 5),
        ("length", 9),
    ]
    assert all(end.prompt_seconds > 0 for end in ends if isinstance(end, GenerationResult))
    assert (states, engine.failure) == ([State.READY, State.ENDED], None)


def test_rejects_requests_until_the_model_is_loaded() -> None:
    gate = threading.Event()

    def load() -> Loaded:
        gate.wait(60)
        return _load()

    engine = GenerationQueue(load, _LIMITS, lambda _state: None)
    engine.start()
    with pytest.raises(RequestRefusedError, match=r"is loading the model\. Retry later") as caught:
        engine.submit([Submission().completion])
    engine.stop(0)
    with pytest.raises(RequestRefusedError, match=r"is stopping\. Retry later"):
        engine.submit([Submission().completion])
    gate.set()
    engine.join(60)

    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "2"})
    assert (engine.state, engine.failure) == (State.ENDED, None)


def test_a_model_that_cannot_be_loaded_ends_the_queue() -> None:
    def load() -> Loaded:
        raise RefusedError("weights: gone. Restore them.")

    with run_queue(load, _LIMITS) as (engine, states):
        engine.join(30)

    assert (states, engine.failure) == ([State.ENDED], "weights: gone. Restore them.")


def test_a_request_is_accepted_as_a_whole_or_not_at_all() -> None:
    with run_queue(_load, _LIMITS) as (engine, _):
        asked = [Submission(2_000_000) for _ in range(9)]
        engine.submit([one.completion for one in asked])
        with pytest.raises(RequestRefusedError, match=r"Too many requests are waiting\. Retry in \d+ seconds"):
            engine.submit([Submission().completion, Submission().completion])
        last = Submission()
        engine.submit([last.completion])
        for one in asked:
            one.completion.is_cancelled = True

        assert isinstance(last.end(), GenerationResult)
    assert not any(isinstance(event, Failed) for one in asked for event in one.events)


def test_the_timeout_ends_running_and_waiting_completions() -> None:
    with run_queue(_load, _LIMITS) as (engine, _):
        long = [Submission(2_000_000, seconds=1) for _ in range(3)]
        engine.submit([one.completion for one in long])
        ends = [one.end() for one in long]
        other = Submission()
        engine.submit([other.completion])

        assert isinstance(other.end(), GenerationResult)
    assert [str(end.why) for end in ends if isinstance(end, Failed)] == [
        "The completion did not finish within 60 seconds. Request fewer tokens, or raise --timeout of the server."
    ] * 3


def test_the_queue_survives_a_failure_of_the_model() -> None:
    loaded = _load()
    model = loaded.model
    is_full = threading.Event()

    class Model:
        """Runs out of memory while a flag is set."""

        device, config = model.device, model.config

        def __call__(self, **inputs: Any) -> Any:
            if is_full.is_set():
                raise RuntimeError("out of memory")
            return model(**inputs)

    with run_queue(lambda: Loaded(Model(), loaded.stop, loaded.tokenizer), _LIMITS) as (engine, _):
        is_full.set()
        failing = Submission()
        engine.submit([failing.completion])
        end = failing.end()
        is_full.clear()
        other = Submission()
        engine.submit([other.completion])

        assert isinstance(other.end(), GenerationResult)
    assert isinstance(end, Failed)
    assert end.why.status == 500
    assert "out of memory" in str(end.why)


@pytest.mark.slow
def test_a_stopping_queue_waits_for_running_completions() -> None:
    with run_queue(_load, _LIMITS) as (engine, _):
        short, long = Submission(50), Submission(2_000_000)
        engine.submit([short.completion, long.completion])
        engine.stop(3.0)
        start = time.monotonic()
        engine.join(30)

    assert isinstance(short.end(), GenerationResult)
    assert isinstance(long.events[-1], Failed)
    assert 2.5 < time.monotonic() - start < 15


def test_a_slot_is_built_without_the_lock_and_its_failure_ends_all_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def fail(*_: object) -> None:
        counting = threading.Thread(target=lambda: sizes.append(sum(engine.count())), daemon=True)
        counting.start()
        counting.join(10)
        raise RefusedError("no slot")

    monkeypatch.setattr(queue, "new_slot", fail)
    with run_queue(_load, _LIMITS) as (engine, _):
        asked = [Submission() for _ in range(2)]
        engine.submit([one.completion for one in asked])
        ends = [one.end() for one in asked]

    assert (sizes, engine.failure) == ([2], "no slot")
    assert all(isinstance(end, Failed) for end in ends)


def test_a_long_prompt_does_not_block_others() -> None:
    with run_queue(_load, _LIMITS) as (engine, _):
        long, short = Submission(1, prompt=(121,) * 40_000), Submission(3)
        engine.submit([long.completion])
        engine.submit([short.completion])
        short.end()
        is_long_over = long.is_over.is_set()
        long.completion.is_cancelled = True

    assert not is_long_over


def test_rejects_requests_that_cannot_finish_in_time() -> None:
    def load_slow_model() -> Loaded:
        loaded = _load()
        forward = loaded.model.forward

        def wait_and_forward(*arguments: Any, **named: Any) -> Any:
            time.sleep(0.1)
            return forward(*arguments, **named)

        loaded.model.forward = wait_and_forward
        return loaded

    with run_queue(load_slow_model, ServerLimits(1, 1_000, 1.0, 100)) as (engine, _):
        first = Submission(6)
        engine.submit([first.completion])
        assert isinstance(first.end(), GenerationResult)
        refused = [one for one in (_catch_refusal(engine) for _ in range(5)) if one is not None]

        assert 1 <= len(refused) <= 4  # the first is accepted: none waits before it
        assert "Too many requests are waiting" in str(refused[0])


def _catch_refusal(engine: GenerationQueue) -> RequestRefusedError | None:
    try:
        engine.submit([Submission(100).completion])
    except RequestRefusedError as refusal:
        return refusal
    return None
