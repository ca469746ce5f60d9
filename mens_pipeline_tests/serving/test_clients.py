"""Fields that editors and agents send in addition to those of the clients of OpenAI and Ollama."""

from typing import Any

import openai
import pytest

from mens_pipeline.inference.generation import Syntax
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import TEMPLATE, Turn, encode_text, encode_turns
from mens_pipeline_tests.serving.running import Running

_ASK: list[Any] = [{"role": "user", "content": "Write a function."}]
_CHAT: dict[str, Any] = {"model": "mens", "messages": _ASK, "max_tokens": 20}


def _post(server: Running, path: str, **fields: Any) -> tuple[dict[str, Any], str | None]:
    reply = server.post(path, **fields)
    assert reply.status_code == 200, reply.text
    return reply.json(), reply.headers.get("x-mens-warning")


def _read_content(reply: dict[str, Any]) -> str:
    content: str = reply["choices"][0]["message"]["content"]
    return content


def test_reduces_max_tokens_to_the_limits_with_a_warning(server: Running) -> None:
    """Editors request 4,096 of any model."""
    reply, warning = _post(server, "/v1/chat/completions", **{**_CHAT, "max_tokens": 4_096})
    long = [{"role": "user", "content": "x" * 350}]
    near_the_limit, other = _post(server, "/v1/chat/completions", **{**_CHAT, "messages": long, "max_tokens": 200})
    usage = near_the_limit["usage"]

    assert reply["usage"]["completion_tokens"] <= 400
    assert warning is not None
    assert warning.startswith("max_tokens 4096 ")
    assert warning.endswith("reduced to 400 (--max-new-tokens)")
    assert usage["total_tokens"] <= 512
    assert other is not None
    assert other.startswith("max_tokens 200 ")
    assert other.endswith(f"was reduced to {512 - usage['prompt_tokens']}")
    ollama = {"model": "mens", "prompt": "x", "stream": False, "options": {"num_predict": 401}}
    expected = "num_predict 401 was reduced to 400 (--max-new-tokens)"
    assert _post(server, "/api/generate", **ollama)[1] == expected


def test_fields_without_effect_are_ignored_with_a_warning(server: Running) -> None:
    plain, nothing = _post(server, "/v1/chat/completions", **_CHAT)
    extra = {"store": True, "reasoning_effort": "high", "verbosity": "low", "prompt_cache_key": "k", "user": None}
    reply, warning = _post(server, "/v1/chat/completions", **_CHAT, **extra, ignored=["x\r\ny"])
    streamed = server.post("/v1/chat/completions", **_CHAT, **extra, stream=True)

    assert nothing is None
    assert _read_content(reply) == _read_content(plain)
    assert warning == "ignored: prompt_cache_key, reasoning_effort, store, verbosity"
    assert streamed.headers["x-mens-warning"] == warning


def test_options_of_ollama_without_effect_are_ignored(server: Running) -> None:
    body = {"model": "mens", "prompt": "Write a function.", "stream": False}
    plain, _ = _post(server, "/api/generate", **body, options={"num_predict": 20})
    options = {"num_predict": 20, "num_ctx": 8_192, "top_k": 40, "repeat_penalty": 1.1}
    reply, warning = _post(server, "/api/generate", **body, options=options)

    assert reply["response"] == plain["response"]
    assert warning == "ignored: options.num_ctx, options.repeat_penalty, options.top_k"


def test_the_role_developer_means_system(server: Running) -> None:
    briefs = [[{"role": role, "content": "Be brief."}] for role in ("developer", "system")]
    bodies = [{**_CHAT, "messages": [*brief, *_ASK]} for brief in [*briefs, []]]
    developer, system, nobody = (_read_content(_post(server, "/v1/chat/completions", **fields)[0]) for fields in bodies)

    assert developer == system != nobody


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/chat"])
def test_continues_a_last_message_of_the_assistant(server: Running, path: str) -> None:
    """Token for token, without repeating the beginning, and unconstrained."""
    begun = {"role": "assistant", "content": "fn twice(n: int"}
    body = {"model": "mens", "messages": [*_ASK, begun], "stream": False}
    limits = {"max_tokens": 20} if path.startswith("/v1") else {"options": {"num_predict": 20}}
    reply, warning = _post(server, path, **body, **limits)
    tokenizer = FileTokenizer(server.served.evaluated.base_path)
    turns = (Turn("system", server.served.system_prompt), Turn("user", _ASK[0]["content"]))
    prompt = encode_turns(tokenizer, turns)
    whole = encode_turns(tokenizer, (*turns, Turn("assistant", begun["content"])))
    content = _read_content(reply) if path.startswith("/v1") else reply["message"]["content"]
    num_prompt = reply["usage"]["prompt_tokens"] if path.startswith("/v1") else reply["prompt_eval_count"]

    assert whole == (*prompt, *tokenizer.encode("fn twice(n: int", add_special_tokens=False))
    assert num_prompt == len(whole)
    assert content
    assert not content.startswith("fn twice")
    assert warning is None


def test_rejects_constraints_on_a_continued_message(server: Running) -> None:
    messages = [*_ASK, {"role": "assistant", "content": "fn twice(n: int"}]
    with pytest.raises(openai.BadRequestError, match="the parser cannot constrain a continuation of your text"):
        server.openai().chat.completions.create(
            model="mens", messages=messages, extra_body={"decoding": Syntax.CONSTRAINED}
        )


def test_continues_a_plain_text(server: Running) -> None:
    client = server.openai()
    text = "fn twice(n: int) to int {"
    whole = client.completions.create(model="mens", prompt=text, max_tokens=24)
    pieces = list(
        client.completions.create(
            model="mens", prompt=[text], max_tokens=24, stream=True, stream_options={"include_usage": True}
        )
    )
    tokenizer = FileTokenizer(server.served.evaluated.base_path)
    several = client.completions.create(model="mens", prompt=text, n=3, temperature=1.0, seed=1)

    ids = list(encode_text(tokenizer, text))
    by_ids = [client.completions.create(model="mens", prompt=sent, max_tokens=24) for sent in (ids, [ids])]

    assert [reply.choices[0].text for reply in by_ids] == [whole.choices[0].text] * 2
    assert [reply.usage for reply in by_ids] == [whole.usage] * 2
    assert whole.object == "text_completion"
    assert whole.usage is not None
    assert (
        whole.usage.prompt_tokens
        == len(encode_text(tokenizer, text))
        == len(tokenizer.encode(text, add_special_tokens=False))
    )
    assert whole.choices[0].text == "".join(piece.choices[0].text for piece in pieces if piece.choices)
    assert whole.choices[0].finish_reason == "length"
    assert pieces[-1].usage == whole.usage
    assert len({choice.text for choice in several.choices}) == 3
    assert several.usage is not None
    assert several.usage.completion_tokens <= 3 * 16


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": ""}, "prompt: empty; send text to continue"),
        ({"prompt": ["a", "b"]}, "prompt: 2 texts; send one per request"),
        ({"prompt": [1, 10_000_000]}, "prompt: the id 10000000 is not in the model's vocabulary of [0-9]+ tokens"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [1, 2], "suffix": "b"}, "suffix: only allowed with a text prompt"),
        ({"prompt": "a", "stop": ["", "b"]}, "stop: at most 4 texts, none of them empty"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens: "),
    ],
)
def test_rejects_texts_that_cannot_be_continued(server: Running, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        server.openai().completions.create(model="mens", **fields)


def test_a_text_completion_ends_with_an_error_at_the_timeout(busy: Running) -> None:
    events = busy.events("/v1/completions", model="mens", prompt="Go on.", max_tokens=900_000, stream=True)

    assert events[-1]["error"]["code"] == "timeout"


@pytest.mark.parametrize("field", ["model", "name"])
def test_describes_a_model(server: Running, field: str) -> None:
    shown, _ = _post(server, "/api/show", **{field: "mens:latest", "verbose": False})
    family = server.served.architecture

    assert shown["capabilities"] == ["completion"]
    assert shown["model_info"][f"{family}.context_length"] == server.served.max_context
    assert (shown["template"], shown["system"]) == (TEMPLATE, server.served.system_prompt)
    assert shown["details"]["family"] == family
