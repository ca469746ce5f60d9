"""Requests and replies in the format of Ollama."""

from typing import Any

import pytest

from mens_pipeline_tests.serving.running import Running

_SHORT: dict[str, Any] = {"model": "mens", "prompt": "Write a function.", "options": {"num_predict": 20}}


@pytest.mark.seed_row(23)
def test_a_completion_comes_whole_or_line_by_line(server: Running) -> None:
    lines = server.events("/api/generate", **_SHORT)
    (whole,) = server.events("/api/generate", **_SHORT, stream=False)

    assert "".join(line["response"] for line in lines) == whole["response"] != ""
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert len(lines) > 3
    for end in (lines[-1], whole):
        assert (end["done_reason"], end["eval_count"], end["model"]) == ("length", 20, server.served.name)
        assert end["total_duration"] >= end["eval_duration"] > 0


def test_all_formats_return_the_same_completion(server: Running) -> None:
    (generated,) = server.events("/api/generate", **_SHORT, stream=False)
    messages: list[Any] = [{"role": "user", "content": "Write a function."}]
    chatted = server.events("/api/chat", model="mens", messages=messages, options={"num_predict": 20})
    completed = server.openai().chat.completions.create(model="mens", messages=messages, max_tokens=20)

    assert generated["response"] == completed.choices[0].message.content
    assert "".join(line["message"]["content"] for line in chatted) == generated["response"]


def test_obeys_a_system_text_and_options(server: Running) -> None:
    (plain,) = server.events("/api/generate", **_SHORT, stream=False)
    (details,) = server.events("/api/generate", **_SHORT, stream=False, system="You are somebody else.")
    sampling = {"num_predict": 20, "temperature": 1.0, "top_p": 0.9, "seed": 5}
    samples = [server.events("/api/generate", **{**_SHORT, "options": sampling}, stream=False)[0] for _ in range(2)]
    stop = plain["response"][4:6]
    (ended,) = server.events("/api/generate", **{**_SHORT, "options": {"num_predict": -1, "stop": stop}}, stream=False)

    assert details["response"] != plain["response"] != samples[0]["response"] == samples[1]["response"]
    assert (ended["response"], ended["done_reason"]) == (plain["response"].split(stop)[0], "stop")


def test_tags_and_version_describe_the_server(server: Running) -> None:
    with server.http() as client:
        tags = client.get("/api/tags").json()["models"]
        version = client.get("/api/version").json()
    (reply,) = server.events("/api/generate", **{**_SHORT, "model": tags[0]["name"]}, stream=False)

    assert [tag["name"] for tag in tags] == [f"{server.served.name}:latest", "mens:latest"]
    assert (tags[0]["digest"], tags[0]["details"]["family"]) == (server.served.sha256, "LlamaForCausalLM")
    assert tags[0]["size"] > 100_000
    assert version == {"version": "0.1.0"}
    assert reply["done"] is True


@pytest.mark.parametrize(
    ("path", "fields", "status", "message"),
    [
        ("/api/generate", {**_SHORT, "template": "{{ .System }}"}, 400, "template: the model uses its own template."),
        ("/api/generate", {**_SHORT, "options": {"top_x": 4}}, 400, "options.top_x: not supported here, leave it out."),
        ("/api/show", {"model": "llama3"}, 404, "The model `llama3` is not served here."),
        ("/api/show", {}, 400, "model: Field required"),
        (
            "/api/generate",
            {**_SHORT, "options": {"stop": list("abcde")}},
            400,
            "stop: 5 texts are above the limit of 4",
        ),
        ("/api/chat", {"model": "mens", "messages": []}, 400, "messages: List should have at least 1 item"),
        ("/api/embeddings", {"model": "mens", "prompt": "x"}, 501, "This server does not support embeddings."),
        ("/api/pull", {"model": "mens"}, 404, "POST /api/pull: Not Found"),
    ],
)
def test_refusals_are_a_sentence(server: Running, path: str, fields: dict[str, Any], status: int, message: str) -> None:
    reply = server.post(path, **fields)

    assert reply.status_code == status
    assert list(reply.json()) == ["error"]
    assert reply.json()["error"].startswith(message)
