"""Requests of OpenAI's own client."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import encode_prompt
from mens_pipeline_tests.serving.running import Running

_ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Write a function."}]


def _chat(server: Running, **options: Any) -> Any:
    asked = {"model": "mens", "messages": _ASK, "max_tokens": 24, **options}
    return server.openai().chat.completions.create(**asked)


def _text(server: Running, **options: Any) -> str | None:
    text: str | None = _chat(server, **options).choices[0].message.content
    return text


@pytest.mark.seed_row(23)
def test_completes_a_request(server: Running) -> None:
    reply = _chat(server)
    tokenizer = FileTokenizer(server.served.evaluated.base_path)

    assert reply.model == server.served.name
    assert reply.system_fingerprint == server.served.fingerprint
    assert [(choice.finish_reason, choice.message.role) for choice in reply.choices] == [("length", "assistant")]
    assert reply.choices[0].message.content
    assert reply.usage.prompt_tokens == len(encode_prompt(tokenizer, SYSTEM_PROMPT, "Write a function."))
    assert (reply.usage.completion_tokens, reply.usage.total_tokens) == (24, reply.usage.prompt_tokens + 24)


def test_the_system_text_of_training_is_the_default(server: Running) -> None:
    def complete_with(text: str) -> str | None:
        return _text(server, messages=[{"role": "system", "content": text}, *_ASK])

    assert _text(server) == complete_with(SYSTEM_PROMPT) != complete_with("You are somebody else.")


def test_a_stream_is_the_completion_in_pieces(server: Running) -> None:
    chunks: list[Any] = list(_chat(server, stream=True, stream_options={"include_usage": True}))
    *pieces, last = chunks
    plain: list[Any] = list(_chat(server, max_tokens=4, stream=True))
    ended = [piece.choices[0].finish_reason for piece in pieces if piece.choices[0].finish_reason]
    whole = _chat(server)

    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == whole.choices[0].message.content
    assert (pieces[0].choices[0].delta.role, ended) == ("assistant", ["length"])
    assert len({chunk.id for chunk in chunks}) == 1
    assert (last.choices, last.usage) == ([], whole.usage)
    assert all(piece.usage is None for piece in pieces)
    assert len(pieces) > 3
    assert plain[-1].choices[0].finish_reason == "length"
    assert all(piece.usage is None for piece in plain)


def test_samples_follow_their_seed(server: Running) -> None:
    def sample(seed: int) -> list[str | None]:
        reply = _chat(server, temperature=1.0, top_p=0.9, seed=seed, n=3)
        return [choice.message.content for choice in reply.choices]

    first = sample(7)

    assert len(set(first)) == 3
    assert first == sample(7) != sample(8)
    assert _text(server, temperature=1.0) != _text(server, temperature=1.0)  # without a seed


@pytest.mark.threat("N5")
@pytest.mark.parametrize("tiny", [{"temperature": 1e-38}, {"temperature": 1.0, "top_p": 1e-46}])
def test_tiny_sampling_parameters_break_no_completion(server: Running, tiny: dict[str, float]) -> None:
    with ThreadPoolExecutor(2) as pool:
        beside = pool.submit(_text, server, max_tokens=200)
        assert _text(server, **tiny) == _text(server)
        assert beside.result()


def test_several_completions_stream_side_by_side(server: Running) -> None:
    asked: dict[str, Any] = {"max_tokens": 16, "temperature": 1.0, "seed": 3, "n": 2}
    texts, chunks = {0: "", 1: ""}, _chat(server, **asked, stream=True)
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""

    assert list(texts.values()) == [choice.message.content for choice in _chat(server, **asked).choices]


def test_a_stop_text_ends_the_completion(server: Running) -> None:
    whole = _text(server) or ""
    stop = whole[6:8]
    reply = _chat(server, stop=[stop, "never to be seen"])

    assert reply.choices[0].message.content == whole[: whole.index(stop)]
    assert reply.choices[0].finish_reason == "stop"


def test_continues_a_conversation(server: Running) -> None:
    first = _chat(server).choices[0].message
    turns = [*_ASK, first.model_dump(), {"role": "user", "content": "Shorter."}]

    assert _text(server, messages=turns) != first.content


def test_parts_of_text_are_one_text(server: Running) -> None:
    parts = [{"type": "text", "text": "Write"}, {"type": "text", "text": "Vox."}]

    assert _text(server, messages=[{"role": "user", "content": parts}]) == _text(
        server, messages=[{"role": "user", "content": "Write\nVox."}]
    )


def test_accepts_fields_without_effect(server: Running) -> None:
    idle = {"frequency_penalty": 0, "presence_penalty": 0.0, "logprobs": False, "tools": [], "logit_bias": {}}

    assert _text(server, **idle, response_format={"type": "text"}, user="me", n=1) == _text(server)


def test_concurrent_requests_get_the_same_completions_as_single_ones(server: Running) -> None:
    requests = ["x", "Write a function.", "Write a type with two fields `x` and `y`, please.", "Why?"]

    def complete(text: str) -> str | None:
        return _text(server, messages=[{"role": "user", "content": text}], max_tokens=40)

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(complete, requests))

    assert together == [complete(text) for text in requests]


def test_the_models_are_listed(server: Running) -> None:
    client = server.openai()

    assert [model.id for model in client.models.list()] == [server.served.name, "mens"]
    assert client.models.retrieve("mens").created == server.served.created_unix
    with pytest.raises(openai.NotFoundError, match="is not served here"):
        client.models.retrieve("gpt-4")


@pytest.mark.parametrize(
    ("options", "param", "message"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "tools: not supported here, leave"),
        ({"top_logprobs": 2}, None, "top_logprobs: only allowed with logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "top_logprobs: .* less than or equal to 20"),
        (
            {"response_format": {"type": "json_object"}},
            None,
            'completions are Vox programs; use the type "text" or "gram',
        ),
        ({"extra_body": {"topk": 5, "minp": 1}}, "topk", "topk: not supported .*; minp: not supported"),
        ({"temperature": 2.5}, "temperature", "temperature: Input should be less than or equal to 2"),
        ({"max_completion_tokens": 5}, None, "max_tokens and max_completion_tokens set the same limit"),
        ({"n": 5}, "n", "n: 5 is above the limit of 4 completions at once"),
        ({"stop": ["a", ""]}, None, "stop: at most 4 texts, none of them empty"),
        ({"stream_options": {"include_usage": True}}, None, "stream_options: only allowed with stream"),
        ({"messages": []}, "messages", "messages: List should have at least 1 item"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role", "role: Input should be 'system', 'dev"),
        ({"messages": [{"role": "developer", "content": "x"}]}, None, "the last message has the role system"),
        (
            {"messages": [*_ASK, {"role": "system", "content": "x"}, *_ASK]},
            None,
            "only the first message may have the role system",
        ),
    ],
)
def test_rejects_unsupported_fields_by_name(
    server: Running, options: dict[str, Any], param: str | None, message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        _chat(server, **options)

    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_another_model_is_refused(server: Running) -> None:
    with pytest.raises(openai.NotFoundError, match=rf"Use {server.served.name} or mens") as caught:
        _chat(server, model="gpt-4")

    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_rejects_a_prompt_beyond_the_context(server: Running) -> None:
    with pytest.raises(openai.BadRequestError, match=r"The prompt has \d+ tokens, but the model's context is 512"):
        _chat(server, messages=[{"role": "user", "content": "x" * 600}])


def test_a_completion_stays_within_the_context(server: Running) -> None:
    reply = _chat(server, messages=[{"role": "user", "content": "x" * 380}], max_tokens=None)

    assert reply.usage.total_tokens == 512


@pytest.mark.threat("N1")
@pytest.mark.parametrize("token", ["wrong", "", "a secret of the test", "a secret of the tests!"])
def test_a_wrong_token_is_refused(server: Running, token: str) -> None:
    with pytest.raises(openai.AuthenticationError, match="Authorization: Bearer TOKEN") as caught:
        _chat(replace(server, token=token or "-"))

    assert caught.value.code == "invalid_api_key"
