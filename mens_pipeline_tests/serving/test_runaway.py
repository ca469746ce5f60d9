"""Completions that do not end by themselves: where the server cuts them, and the text that it sends."""

from dataclasses import dataclass, field, replace
from itertools import chain, cycle, repeat
from typing import Any, Final

import pytest

from mens_pipeline.inference.generation import Syntax, is_program
from mens_pipeline.language import Mode
from mens_pipeline.language.surroundings import read_surroundings
from mens_pipeline.models.chat import Turn
from mens_pipeline.serving import queue as queue_module
from mens_pipeline.serving import slot as slot_module
from mens_pipeline.serving.generation import Failed, GenerationRequest, GenerationResult, Piece
from mens_pipeline.serving.queue import Loaded, ServerLimits
from mens_pipeline.serving.slot import ServedSlot
from mens_pipeline_tests.serving.submission import Submission, run_queue

_ADD: Final = "fn add(a: int, b: int) to int {\n    return a + b\n}\n"
_ENDLESS: Final = "fn a() to int {\n" + "".join(f"    f({number})\n" for number in range(999))
_END: Final = 0
_HALF_CHARACTER: Final = "\ufffd"
"""The text of a token that is a part of a character."""


class _Clock:
    """Replaces the module `time`: only steps advance it, so the load of the machine does not matter."""

    now = 1_000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now


_CLOCK: Final = _Clock()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "time", _CLOCK)
    monkeypatch.setattr(slot_module, "time", _CLOCK)


class _Characters:
    """A tokenizer of characters."""

    added_tokens_decoder: Final[dict[int, Any]] = {}

    @staticmethod
    def decode(tokens: Any, **_options: Any) -> str:
        return "".join(map(chr, tokens))

    @staticmethod
    def encode(text: str, **_options: Any) -> list[int]:
        return [*map(ord, text)]


def _favour(token: int) -> Any:
    import torch

    return torch.eye(128)[token]


@dataclass
class _Typist:
    """Writes a text, one character in each step, unless the parser requires another; `pause` is in seconds."""

    text: Any
    pause: float = 0.0
    scores: Any = None
    num_slots: int = 1
    is_steered: bool = False
    slots: list[tuple[ServedSlot, Any]] = field(default_factory=list)

    @property
    def has_room(self) -> bool:
        return len(self.slots) < self.num_slots

    def admit(self, slot: ServedSlot) -> None:
        assert slot.constraint is not None
        self.slots.append((slot, iter(self.text)))

    def step(self) -> list[ServedSlot]:
        _CLOCK.now += self.pause
        for slot, text in self.slots:
            slot.end_unwanted(_CLOCK.now)
            if slot.end is None:
                token = ord(next(text, "\0"))
                if self.is_steered:
                    token = slot.choose(_favour(token))
                slot.take(token, self.scores, frozenset({_END}))
        ended = [slot for slot, _ in self.slots if slot.end is not None]
        self.slots = [(slot, text) for slot, text in self.slots if slot.end is None]
        return ended

    def clear(self) -> None:
        self.slots.clear()


@dataclass(frozen=True, slots=True)
class _Loaded(Loaded):
    def new_engine(self, _num_slots: int) -> Any:
        return replace(self.model, slots=[])


def _load(typist: _Typist) -> Loaded:
    return _Loaded(typist, frozenset({_END}), _Characters())


def _ask(max_tokens: int, **fields: Any) -> Submission:
    return Submission(max_tokens, **{"deadline": _CLOCK.now + 60, "syntax": Syntax.CONSTRAINED, **fields})


def _generate(
    text: Any, prompt: str = "Write a function.", seconds: float = 60.0, num_likeliest: int | None = None, **typed: Any
) -> tuple[GenerationResult | Failed, list[Piece]]:
    request = GenerationRequest("mens", (Turn("user", prompt),), num_likeliest=num_likeliest)
    asked = _ask(900, asked=request, deadline=_CLOCK.now + seconds)
    with run_queue(lambda: _load(_Typist(text, **typed)), ServerLimits(1, 1_000, seconds, 900)) as (queue, _):
        queue.submit([asked.completion])
        end = asked.end()
    assert not isinstance(end, Piece)
    return end, [event for event in asked.events if isinstance(event, Piece)]


def _generate_result(*asked: Any, **options: Any) -> GenerationResult:
    end, pieces = _generate(*asked, **options)
    assert isinstance(end, GenerationResult)
    assert "".join(piece.text for piece in pieces) == end.text
    return end


def test_pieces_at_a_cursor_get_most_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, step = list[bool](), _Typist.step

    def record(typist: _Typist) -> list[ServedSlot]:
        steps.append(any(slot.is_checked for slot, _ in typist.slots))
        return step(typist)

    monkeypatch.setattr(_Typist, "step", record)
    request = GenerationRequest("mens", (), text="")
    long, piece = _ask(900, asked=request), _ask(40, asked=request, around=read_surroundings("let x = ", ""))
    with run_queue(lambda: _load(_Typist(cycle("a"))), ServerLimits(1, 1_000, 60.0, 900)) as (queue, _):
        queue.submit([long.completion, piece.completion])
        queue.submit([long.completion] * 4)  # the piece takes none of their places
        piece.end()

    assert sum(steps) == 40
    assert "".join("po"[not of_piece] for of_piece in steps).startswith("pppppppopppppppopppppppo")


@pytest.mark.parametrize(
    ("text", "shown", "most"),
    [
        ("return a + b\n}  " + "20" * 200, "return a + b", 32),
        ("return a + b\n}\n// " + "and so on " * 40, "return a + b", 32),
        ("if a > b {\n        return a\n    } else {\n        return b\n    }\0", None, 900),
        ('return a + b\nlet a = "' + "and so on " * 40, "return a + b", 400),
    ],
)
def test_a_piece_ends_soon_after_its_block(text: str, shown: str | None, most: int) -> None:
    """The response ends with `shown` (None: the whole text), and counts only its tokens."""
    prefix, suffix = "fn add(a: int, b: int) to int {\n    ", "\n}\n"
    asked = GenerationRequest("mens", (), text=prefix, suffix=suffix)
    piece = _ask(400, asked=asked, around=read_surroundings(prefix, suffix))
    with run_queue(lambda: _load(_Typist(text)), ServerLimits(1, 1_000, 60.0, 900)) as (queue, _):
        queue.submit([piece.completion])
        end = piece.end()

    assert isinstance(end, GenerationResult)
    whole = text.rstrip("\0") if shown is None else shown
    assert (end.text, end.reason, end.num_tokens) == (whole, "stop", len(whole) + (shown is None))
    assert end.num_computed <= most


def test_a_repeated_declaration_ends_the_completion() -> None:
    end = _generate_result(chain.from_iterable(repeat(_ADD)))

    assert (end.text, end.reason) == ((2 * _ADD).strip(), "length")
    assert end.details == {"decoding": "constrained", "cut": "repetition"}
    assert end.num_tokens == len(end.text)


def test_the_requested_declaration_ends_the_completion() -> None:
    """This is not a cut: the rest was not requested. Without a name the model may continue."""
    text = _ADD + "fn more() to int {\n    return 1\n}\n"

    end = _generate_result(text, prompt="Write a function `add`.")
    assert (end.text, end.reason, "cut" in end.details) == (_ADD.strip(), "stop", False)
    assert _generate_result(text, prompt="Write a function `add`, with `more`.").text == text.strip()
    assert _generate_result(text).text == text


def test_the_completion_continues_for_functions_that_the_request_needs() -> None:
    text = "fn add(a: int) to int {\n    return twice(a)\n}\nfn twice(a: int) to int {\n    return a + a\n}\n"

    for prompt in ("Write a function `add`.", "Write a function `add` that calls `twice`."):
        assert _generate_result(text, prompt=prompt).text == text.strip()


@pytest.mark.parametrize(
    ("start", "again", "limit"),
    [
        ("fn f(s: str) to int {\n    return range(0, str(len(", "str(", {"cut": "repetition"}),
        ('fn f() to list[str] {\n    return ["open", ', '"open_open", ', {"cut": "repetition"}),
        ("fn f() {\n    a = [", "".join(f"{number}, " for number in range(999)), {}),
    ],
)
def test_a_program_that_the_server_closes_ends_with_length(start: str, again: str, limit: dict[str, str]) -> None:
    """Although the last token ends the turn: the model would have continued."""
    end = _generate_result(chain(start, cycle(again)), is_steered=True)

    assert is_program(end.text, Mode.SOURCE)
    assert (end.reason, end.details) == ("length", {"decoding": "constrained", **limit})
    assert end.num_computed < (600 if limit else 901)


def test_a_program_that_the_model_ends_ends_with_stop() -> None:
    end = _generate_result(_ADD, is_steered=True)

    assert (end.text, end.reason, "cut" in end.details) == (_ADD, "stop", False)


def test_closes_the_program_at_the_limit() -> None:
    end = _generate_result(_ENDLESS)

    assert is_program(end.text, Mode.SOURCE)
    assert (end.reason, end.num_computed) == ("length", 900)


def test_sends_the_finished_part_at_the_timeout() -> None:
    more = (c for n in range(9999) for c in f"fn f{n}() to int {{\n    return {n}\n}}\n")
    for text in (more, _ENDLESS):
        end = _generate_result(text, pause=0.002, seconds=1.0)

        assert is_program(end.text, Mode.SOURCE)
        assert (end.reason, end.details["cut"]) == ("length", "timeout")


def test_the_timeout_is_an_error_if_no_part_is_finished() -> None:
    end, pieces = _generate(cycle(" "), pause=0.002, seconds=0.2)

    assert isinstance(end, Failed)
    assert end.why.code == "timeout"
    assert {character for piece in pieces for character in piece.text} == {" "}


def test_counts_sent_tokens_that_form_no_program() -> None:
    end = _generate_result(cycle(" "))

    assert (end.text.strip(), end.reason) == ("", "length")
    assert end.num_tokens == len(end.text) > 0


def test_reports_tokens_without_text_at_the_timeout() -> None:
    """A token that is half a character has no text yet; its log-probability is reported with the others."""
    import torch

    text = chain('fn a() to str {\n    return "', repeat(_HALF_CHARACTER))
    scores = torch.zeros(ord(_HALF_CHARACTER) + 1)
    end, pieces = _generate(text, pause=0.1, seconds=20.0, num_likeliest=0, scores=scores)

    assert isinstance(end, GenerationResult)
    assert end.details["cut"] == "timeout"
    assert sum(len(piece.tokens) for piece in pieces) == end.num_tokens
