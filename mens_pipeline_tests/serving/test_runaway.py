"""Completions that do not end by themselves: where they are ended, what is sent of them, and what they may take."""

import threading
import time
from dataclasses import dataclass, field
from itertools import chain, cycle, repeat
from typing import Any, Final

import pytest

from mens_pipeline.inference.generation import Syntax, is_program
from mens_pipeline.language import Mode
from mens_pipeline.models.chat import Turn
from mens_pipeline.serving.generation import (
    Event,
    Failed,
    GenerationRequest,
    GenerationResult,
    PendingCompletion,
    Piece,
)
from mens_pipeline.serving.queue import GenerationQueue, Limits, Loaded, State
from mens_pipeline.serving.slot import ServedSlot

_ADD: Final = "fn add(a: int, b: int) to int {\n    return a + b\n}\n"
_HALF: Final = "fn add(a: int) to int {\n    let b = a\n"
_NOISE: Final = "".join(f"x{number} y\n" for number in range(999))
_ENDLESS: Final = "fn a() to int {\n" + "".join(f"    f({number})\n" for number in range(999))
_END: Final = 0


class _Characters:
    """A tokenizer of characters."""

    @staticmethod
    def decode(tokens: Any, **_options: Any) -> str:
        return "".join(map(chr, tokens))

    @staticmethod
    def encode(text: str, **_options: Any) -> list[int]:
        return [*map(ord, text)]


@dataclass
class _Typist:
    """Writes a text for each slot, a character a step: the first try's, and that of what the parser steers."""

    free: Any
    steered: Any
    seconds: float
    num_slots: int = 1
    slots: list[tuple[ServedSlot, Any]] = field(default_factory=list)

    def admit(self, slot: ServedSlot) -> None:
        self.slots.append((slot, iter(self.free if slot.constraint is None else self.steered)))

    def step(self) -> list[ServedSlot]:
        time.sleep(self.seconds)
        for slot, text in self.slots:
            slot.end_unwanted(time.monotonic())
            if slot.end is None:
                token = ord(next(text, "\0"))
                slot.take(token, None, frozenset({_END}))
        ended = [slot for slot, _ in self.slots if slot.end is not None]
        self.slots = [(slot, text) for slot, text in self.slots if slot.end is None]
        return ended

    def clear(self) -> None:
        self.slots.clear()


@dataclass(frozen=True, slots=True)
class _Loaded(Loaded):
    def new_engine(self, _num_slots: int) -> Any:
        return self.model


def _sent(
    free: Any, steered: Any = "", prompt: str = "Write a function.", seconds: float = 60.0, **typed: Any
) -> tuple[GenerationResult | Failed, str]:
    """The end of a completion in fallback decoding with a limit of 900 tokens, and all text that came."""
    ready, over, events = threading.Event(), threading.Event(), list[Event]()
    typist = _Typist(free, steered, typed.pop("pause", 0.0))
    queue = GenerationQueue(
        lambda: _Loaded(typist, frozenset({_END}), _Characters()),
        Limits(1, 1_000, seconds, 900),
        lambda _state: ready.set(),
    )
    queue.start()
    assert ready.wait(60)
    assert queue.state is State.READY

    def listen(event: Event) -> None:
        events.append(event)
        if not isinstance(event, Piece):
            over.set()

    request = GenerationRequest(
        "mens",
        (Turn("user", prompt),),
        max_tokens=900,
        deadline=time.monotonic() + seconds,
        syntax=Syntax.FALLBACK,
        seed=0,
        prompt=(1,),
    )
    queue.submit([PendingCompletion(request, 0, listen)])
    assert over.wait(60)
    queue.stop(0)
    queue.join(30)
    end = events[-1]
    assert not isinstance(end, Piece)
    return end, "".join(event.text for event in events if isinstance(event, Piece))


def _result(*asked: Any, **options: Any) -> GenerationResult:
    end, text = _sent(*asked, **options)
    assert isinstance(end, GenerationResult)
    assert text == end.text
    return end


def test_a_declaration_that_comes_again_ends_it() -> None:
    """What stands before it is sent, and counted apart from what it took."""
    end = _result(chain.from_iterable(repeat(_ADD)))

    assert (end.text, end.reason, end.is_constrained) == (_ADD.strip(), "length", False)
    assert end.details == {"decoding": "free", "cut": "repetition"}
    assert (end.num_tokens, end.num_computed) == (len(_ADD) - 1, 2 * len(_ADD) - 1)


def test_a_statement_that_comes_again_ends_the_first_try_early() -> None:
    """Nothing of it stands, so it is written once more under the parser, with what is left of the limit."""
    end = _result(chain(_HALF, cycle("    f(b)\n")), _ADD)

    assert (end.text.strip(), end.reason, end.details) == (_ADD.strip(), "stop", {"decoding": "constrained"})
    assert end.num_tokens == len(_ADD) + 1
    assert end.num_computed == len(_HALF) + 3 * len("    f(b)\n") + end.num_tokens


@pytest.mark.parametrize("steered", [False, True], ids=["free", "steered"])
def test_what_was_asked_for_by_name_ends_it(*, steered: bool) -> None:
    """It is no cut: the model would have gone on with what nobody asked for. Without a name it may go on."""
    text = _ADD + "fn more() to int {\n    return 1\n}\n"
    tries = ("fn (\0", text) if steered else (text,)

    end = _result(*tries, prompt="Write a function `add`.")
    assert (end.text, end.reason, "cut" in end.details) == (_ADD.strip(), "stop", False)
    assert _result(*tries, prompt="Write a function `add`, with `more`.").text == text.strip()
    assert _result(*tries).text == text


def test_what_a_named_declaration_lacks_may_still_come() -> None:
    """It calls a function that is not there yet."""
    text = "fn add(a: int) to int {\n    return twice(a)\n}\nfn twice(a: int) to int {\n    return a + a\n}\n"

    for prompt in ("Write a function `add`.", "Write a function `add` that calls `twice`."):
        assert _result(text, prompt=prompt).text == text.strip()


@pytest.mark.parametrize(("first", "num"), [("x y\n" * 999, 900), (_NOISE, 1200)], ids=["early", "all"])
def test_both_tries_share_the_limit(first: str, num: int) -> None:
    """The second has what the first left, and a third of the limit at least."""
    end = _result(first, _ENDLESS)

    assert is_program(end.text, Mode.SOURCE)
    assert (end.reason, end.num_computed) == ("length", num)


def test_at_the_timeout_what_stands_is_sent() -> None:
    """Of the first try, complete declarations; under the parser, what is written, closed. Both say so."""
    more = (c for n in range(9999) for c in f"fn f{n}() to int {{\n    return {n}\n}}\n")
    first = _result(more, pause=0.002, seconds=1.0)
    second = _result(_NOISE, _ENDLESS, pause=0.002, seconds=1.0)

    for end in (first, second):
        assert is_program(end.text, Mode.SOURCE)
        assert (end.reason, end.details["cut"]) == ("length", "timeout")
    assert first.text.endswith("}")
    assert [first.is_constrained, second.is_constrained] == [False, True]


def test_where_nothing_stands_the_timeout_is_an_error() -> None:
    """As it always was."""
    end, text = _sent(_NOISE, cycle(" "), pause=0.002, seconds=0.2)

    assert isinstance(end, Failed)
    assert (end.why.code, text) == ("timeout", " " * len(text))
