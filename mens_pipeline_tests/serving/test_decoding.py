"""Free and constrained decoding of a real server; `fallback` is constrained."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat.chat_completion import Choice

from mens_pipeline.inference.generation import Syntax, is_program
from mens_pipeline.language import Mode
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline_tests.serving.running import Running, running


@pytest.fixture(scope="module")
def steering(merged: Path) -> Iterator[Running]:
    """A server that constrains completions, by the former name of this setting."""
    with running(merged, ServerLimits(4, 20_000, 300.0, 400), syntax=Syntax.FALLBACK) as server:
        yield server


def _request_choice(server: Running, request: str = "Write a function.", **options: Any) -> Choice:
    extra = {"decoding": options.pop("decoding")} if "decoding" in options else {}
    completion = server.openai().chat.completions.create(
        model="mens", messages=[{"role": "user", "content": request}], extra_body=extra, **{"max_tokens": 16, **options}
    )
    choice: Choice = completion.choices[0]
    return choice


def _read_decoding(choice: Choice) -> str:
    return str((choice.model_extra or {})["decoding"])


@pytest.mark.slow
def test_each_request_gets_a_program(steering: Running) -> None:
    options = [{"temperature": 0.8, "seed": number} if number % 2 else {} for number in range(20)]

    def ask(number: int) -> Choice:
        return _request_choice(steering, f"Write program {number}.", **options[number])

    with ThreadPoolExecutor(4) as pool:
        choices = list(pool.map(ask, range(20)))
    texts = [choice.message.content or "" for choice in choices]

    assert [text for text in texts if not is_program(text, Mode.SOURCE)] == []
    assert {_read_decoding(choice) for choice in choices} == {"constrained"}
    assert {choice.finish_reason for choice in choices} == {"length"}


def test_a_request_may_choose_its_decoding(steering: Running) -> None:
    free = _request_choice(steering, decoding="free")
    constrained = _request_choice(steering, decoding="constrained")

    assert (_read_decoding(free), _read_decoding(constrained)) == ("free", "constrained")
    assert not is_program(free.message.content or "", Mode.SOURCE)
    assert constrained.message.content == _request_choice(steering).message.content


def test_replies_in_the_format_of_ollama_name_the_decoding(steering: Running) -> None:
    body = {"model": "mens", "prompt": "Write a function.", "stream": False, "options": {"num_predict": 16}}
    reply = steering.post("/api/generate", **body).json()

    assert (reply["response"], reply["decoding"]) == (_request_choice(steering).message.content, "constrained")


def test_rejects_an_unknown_decoding(steering: Running) -> None:
    messages = [{"role": "user", "content": "x"}]
    reply = steering.post("/v1/chat/completions", model="mens", messages=messages, decoding="strict")

    assert reply.status_code == 400
    assert "'free', 'constrained' or 'fallback'" in reply.json()["error"]["message"]
