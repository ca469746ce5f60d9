"""A real server that generates several completions and returns one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat.chat_completion import ChatCompletion

from mens_pipeline.inference.generation import Syntax, is_program
from mens_pipeline.language import Mode
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline_tests.serving.running import Running, running

_LIMITS = ServerLimits(3, 20_000, 300.0, 400)


@pytest.fixture(scope="module")
def choosing(merged: Path) -> Iterator[Running]:
    """A server that chooses one of three unconstrained completions."""
    with running(merged, _LIMITS, syntax=Syntax.FREE, best_of=3) as server:
        yield server


def _ask(server: Running, **options: Any) -> ChatCompletion:
    ours = {name: options.pop(name) for name in ("best_of", "decoding") if name in options}
    completion: ChatCompletion = server.openai().chat.completions.create(
        model="mens",
        messages=[{"role": "user", "content": "Write a function `f`. For example, `f(1)` is 2."}],
        extra_body=ours,
        **{"max_tokens": 12, "seed": 5, **options},
    )
    return completion


def test_the_chosen_completion_is_one_of_those_of_a_request_for_three(choosing: Running) -> None:
    completion = _ask(choosing)
    (chosen,) = completion.choices
    usage = completion.usage
    drawn = _ask(choosing, n=3, temperature=0.8, top_p=0.95).choices

    assert (chosen.model_extra or {})["best_of"] == 3
    assert usage is not None
    assert 0 < usage.completion_tokens <= 12
    assert 12 < (usage.model_extra or {})["computed_tokens"] <= 36
    assert chosen.message.content in [choice.message.content for choice in drawn]
    assert len({choice.message.content for choice in drawn}) > 1
    assert all("best_of" not in (choice.model_extra or {}) for choice in drawn)


def test_a_constrained_choice_is_a_program(choosing: Running) -> None:
    (choice,) = _ask(choosing, decoding="fallback", best_of=2).choices

    assert is_program(choice.message.content or "", Mode.SOURCE)
    assert (choice.model_extra or {}) == {"decoding": "constrained", "best_of": 2}


def test_a_stream_sends_the_chosen_completion_in_one_chunk(choosing: Running) -> None:
    whole = _ask(choosing).choices[0].message.content
    chunks: Any = list(_ask(choosing, stream=True))

    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", whole, None]
    assert {chunk.choices[0].index for chunk in chunks} == {0}


def test_requests_in_the_format_of_ollama_use_the_default_of_the_server(choosing: Running) -> None:
    body = {"model": "mens", "prompt": "Write a function.", "stream": False, "options": {"num_predict": 8}}
    cold = {**body, "options": {"num_predict": 8, "temperature": 0}}
    reply, greedy = (choosing.post("/api/generate", **one).json() for one in (body, cold))

    assert reply["best_of"] == 3
    assert reply["computed_count"] > 8
    assert "best_of" not in greedy


def test_a_request_may_turn_the_choice_off(choosing: Running) -> None:
    (choice,) = _ask(choosing, best_of=1).choices

    assert (choice.model_extra or {}) == {"decoding": "free"}
    assert choice.message.content == _ask(choosing, temperature=0).choices[0].message.content


def test_a_request_fails_if_no_completion_ends(endless_model: Path) -> None:
    with running(endless_model, ServerLimits(2, 20_000, 1.0, 900_000), best_of=2) as server:
        # So low that the likeliest token is drawn, which never ends the turn.
        body = {"model": "mens", "messages": [{"role": "user", "content": "x"}], "temperature": 0.01}
        reply = server.post("/v1/chat/completions", **body)

    assert reply.status_code == 504


_PREFIX, _SUFFIX = "let x = ", "\n"


def test_returns_one_of_several_pieces_at_a_cursor(infill: Running) -> None:
    options: dict[str, Any] = {
        "model": "mens",
        "prompt": _PREFIX,
        "suffix": _SUFFIX,
        "max_tokens": 8,
        "temperature": 1.2,
        "top_p": 0.95,
    }
    client = infill.openai()
    num_chosen = 0
    for seed in range(6):
        (chosen,) = client.completions.create(**options, seed=seed, best_of=2).choices
        drawn = client.completions.create(**options, seed=seed, n=2).choices
        streamed = client.completions.create(**options, seed=seed, best_of=2, stream=True)

        assert (chosen.model_extra or {})["best_of"] == 2
        assert "".join(chunk.choices[0].text for chunk in streamed) == chosen.text
        assert chosen.text in {choice.text for choice in drawn}
        assert bool(chosen.text) == any(choice.text for choice in drawn)
        num_chosen += bool(chosen.text)

    assert num_chosen > 0


_CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
_CURSOR = {"prompt": _PREFIX, "suffix": _SUFFIX}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (_CHAT | {"best_of": 4}, "4 is above the limit of 3 completions at once (--max-concurrent)."),
        (_CHAT | {"best_of": 2, "n": 2}, "cannot be combined with n = 2; leave one of them out."),
        (_CHAT | {"best_of": 2, "temperature": 0}, "at temperature 0 all completions are identical; leave it out"),
        (_CURSOR | {"best_of": 9}, "9 is above the limit of"),
        (_CURSOR | {"best_of": 2, "n": 2}, "cannot be combined with n = 2"),
        (_CURSOR | {"best_of": 2, "temperature": 0}, "at temperature 0 all completions are identical"),
        ({"prompt": _PREFIX, "best_of": 2}, "not supported for completions that continue your text"),
        (_CURSOR | {"best_of": 0}, "Input should be greater than or equal to 1"),
    ],
)
def test_rejects_best_of_without_a_choice(
    choosing: Running, infill: Running, fields: dict[str, Any], problem: str
) -> None:
    server, path = (choosing, "/v1/chat/completions") if "messages" in fields else (infill, "/v1/completions")
    reply = server.post(path, model="mens", **fields)

    assert reply.status_code == 400
    assert reply.json()["error"]["message"].startswith(f"best_of: {problem}")
    assert reply.json()["error"]["param"] == "best_of"


def test_a_model_not_trained_for_infill_accepts_best_of(server: Running) -> None:
    body = {"model": "mens", "prompt": _PREFIX, "suffix": _SUFFIX, "best_of": 2, "max_tokens": 4}
    reply = server.post("/v1/completions", **body)

    assert reply.status_code == 200
    assert "was not trained for a suffix" in reply.headers["X-Mens-Warning"]
