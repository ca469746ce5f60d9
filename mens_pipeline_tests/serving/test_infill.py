"""Requests of editors for code at a cursor."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.inference.generation import Syntax
from mens_pipeline.language import analyze
from mens_pipeline.language.surroundings import read_surroundings
from mens_pipeline.models.adapter import MANIFEST, Adapter
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import IM_END, IM_START
from mens_pipeline.models.infill import Order, encode_infill_prompt
from mens_pipeline.serving.completions import Defaults, RequestPreparer
from mens_pipeline.serving.generation import GenerationRequest
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline.serving.served_model import adapter_model
from mens_pipeline_tests.serving.running import CPU, Running, running
from mens_pipeline_tests.serving.talkative import write_infill_run
from mens_pipeline_tests.training.small_folder import Encoder

_LIMITS = ServerLimits(2, 20_000, 60.0, 400)
_PREFIX, _SUFFIX = "fn double(n: int) to int {\n    return n ", "\n}\n"


def _request_pieces(server: Running, **sampled: Any) -> dict[str, tuple[str, int, str]]:
    """By format: text, number of tokens, and reason of the end."""
    fields, options = {"prompt": "let x = ", "suffix": "\n"}, {"num_predict": 12, **sampled}
    ollama = server.post("/api/generate", model="mens", **fields, stream=False, options=options).json()
    llama = server.post("/infill", input_prefix="let x = ", input_suffix="\n", n_predict=12, **sampled).json()
    openai = server.openai().completions.create(model="mens", **fields, max_tokens=12, **sampled)  # type: ignore[call-overload]
    mistral = server.post("/v1/fim/completions", **fields, max_tokens=12, **sampled).json()
    (choice,), why = mistral["choices"], {"eos": "stop", "limit": "length"}
    return {
        "openai": (openai.choices[0].text, openai.usage.completion_tokens, openai.choices[0].finish_reason),
        "mistral": (choice["message"]["content"], mistral["usage"]["completion_tokens"], choice["finish_reason"]),
        "ollama": (ollama["response"], ollama["eval_count"], ollama["done_reason"]),
        "llama.cpp": (llama["content"], llama["tokens_predicted"], why[llama["stop_type"]]),
    }


def test_all_formats_return_the_same_piece(infill: Running) -> None:
    """With the same number of tokens and the same reason of the end."""
    shown = 0
    for seed in range(3):
        pieces = _request_pieces(infill, seed=seed, temperature=1.2)
        assert len(set(pieces.values())) == 1, pieces
        piece, num_tokens, _ = pieces["openai"]
        assert piece == "" or analyze(f"let x = {piece}\n").ok
        assert num_tokens >= len(piece) if piece else num_tokens == 0
        shown += bool(piece)

    assert shown > 0


def test_a_piece_waits_for_no_other_completion(endless_model: Path, tmp_path: Path) -> None:
    run = write_infill_run(tmp_path, endless_model)
    with running(run, ServerLimits(1, 20_000, 20.0, 900_000), show_all=True) as server:
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "Go on."}], "stream": True}
        with server.openai().chat.completions.create(model="mens", **body) as stream:
            next(iter(stream))
            assert server.post("/infill", input_prefix=_PREFIX, input_suffix=_SUFFIX, n_predict=12).status_code == 200
            assert server.figures()["mens_completions_written"] == 1


def test_a_piece_parses_or_is_withheld(infill: Running) -> None:
    shown = 0
    for seed in range(6):
        body = {"input_prefix": "let x = ", "input_suffix": "\n", "n_predict": 16, "temperature": 1.2, "seed": seed}
        piece = infill.post("/infill", **body).json()["content"]
        shown += bool(piece)
        assert not piece or analyze(f"let x = {piece}\n").ok

    assert shown > 0


def test_a_piece_with_an_unknown_name_is_withheld(infill: Running, infill_run: Path) -> None:
    body = {"input_prefix": "let x = ", "input_suffix": "\n", "n_predict": 16, "temperature": 1.2}
    pieces, in_comments, streamed = [], [], []
    with running(infill_run, _LIMITS, syntax=Syntax.FALLBACK) as strict:
        for server in (infill, strict):
            pieces.append([server.post("/infill", **body, seed=seed).json() for seed in range(4)])
            comment = {"input_prefix": "// Adds two num", "input_suffix": "\n", "n_predict": 8}
            in_comments.append(server.post("/infill", **comment).json())
            streamed.append(server.post("/infill", **comment, stream=True).text)
    wrong = [reply for reply in pieces[1] if reply.get("withheld") == "wrong_name"]

    assert wrong
    assert (in_comments[1]["content"], in_comments[1]["withheld"]) == ("", "finished")
    assert '"withheld": "finished"' in streamed[1]
    for shown, kept in zip(*pieces, strict=True):
        around = read_surroundings("let x = ", "\n")
        assert kept["content"] in {"", shown["content"]}
        is_wrong = bool(shown["content"]) and around.find_error(shown["content"]) is not None
        assert (kept.get("withheld") == "wrong_name") == is_wrong


def test_a_piece_continues_the_word_before_the_cursor(infill: Running) -> None:
    shown = 0
    for seed in range(4):
        body = {
            "prompt": "let total = 1\nlet x = tot",
            "suffix": "\n",
            "max_tokens": 12,
            "temperature": 1.2,
            "seed": seed,
        }
        choice = infill.post("/v1/completions", **body, logprobs=1).json()["choices"][0]
        events = infill.events("/v1/fim/completions", **body, stream=True)
        piece, described = choice["text"], (choice["logprobs"] or {"tokens": []})["tokens"]
        shown += bool(piece)

        assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events) == piece
        assert not piece or analyze(f"let total = 1\nlet x = tot{piece}\n").ok
        assert "".join(described)[: len(piece)] == piece

    assert shown > 0


def test_a_stream_ends_with_its_figures(infill: Running) -> None:
    cursor: dict[str, Any] = {"input_prefix": _PREFIX, "input_suffix": _SUFFIX, "n_predict": 8}
    whole, events = infill.post("/infill", **cursor).json(), infill.events("/infill", **cursor, stream=True)
    mistral = infill.post("/v1/fim/completions", prompt=_PREFIX, suffix=_SUFFIX, max_tokens=8, stream=True)
    chunks = [line[6:] for line in mistral.text.splitlines() if line.startswith("data: ")]

    assert "".join(event["content"] for event in events) == whole["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["tokens_predicted"] == whole["tokens_predicted"]
    assert whole["stop_type"] in {"eos", "limit"}
    assert chunks[-1] == "[DONE]"
    texts = [json.loads(chunk)["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]]
    assert "".join(texts) == whole["content"]


def test_a_model_not_trained_for_infill_completes_the_line(server: Running) -> None:
    reply = server.post("/v1/fim/completions", prompt=_PREFIX, suffix=_SUFFIX, max_tokens=20)

    assert reply.status_code == 200
    assert "was not trained for a suffix" in reply.headers["X-Mens-Warning"]
    assert "\n" not in reply.json()["choices"][0]["message"]["content"]


def test_clients_learn_whether_a_model_supports_infill(server: Running, infill: Running) -> None:
    shown = [each.post("/api/show", model="mens").json() for each in (server, infill)]

    assert [".Suffix" in each["template"] for each in shown] == [False, True]
    assert ["insert" in each["capabilities"] for each in shown] == [False, True]


@pytest.mark.parametrize(
    ("path", "body", "found"),
    [
        ("/infill", {"input_prefix": 3}, "input_prefix: Input should be a valid string."),
        ("/infill", {"prefix": "fn a"}, "input_prefix, input_suffix, prompt: all missing; send the code around"),
        ("/infill", {"n_predict": "many"}, "n_predict: Input should be a valid integer"),
        ("/v1/fim/completions", {"suffix": "x"}, "prompt: Field required."),
        ("/v1/fim/completions", {"prompt": "x", "model": "other"}, "The model `other` is not served here."),
        (
            "/v1/completions",
            {"model": "mens", "prompt": [1, 2], "suffix": "x"},
            "suffix: only allowed with a text prompt",
        ),
    ],
)
def test_rejects_malformed_requests(infill: Running, path: str, body: dict[str, Any], found: str) -> None:
    reply = infill.post(path, **body)

    assert reply.status_code in {400, 404}
    assert reply.json()["error"]["message"].startswith(found)


def test_no_piece_has_control_characters(infill_run: Path) -> None:
    with running(infill_run, _LIMITS, show_all=True) as server:
        bodies = (
            {"input_prefix": "let x = ", "input_suffix": "\n", "n_predict": 40, "seed": seed} for seed in range(3)
        )
        text = "".join(server.post("/infill", **body, temperature=1.5).json()["content"] for body in bodies)

    assert len(text) > 40
    assert not [character for character in text if character < " " and character not in "\t\n\r"]


@pytest.mark.parametrize(("order", "is_after"), [("suffix_first", False), ("prefix_first", True)])
def test_the_prompt_has_the_order_of_the_training(
    merged: Path, tmp_path: Path, order: Order, *, is_after: bool
) -> None:
    """A suffix at its end may keep its keys and values while somebody types; marks of several tokens may not."""
    run = write_infill_run(tmp_path, merged)
    manifest = json.loads((run / MANIFEST).read_text())
    (run / MANIFEST).write_text(json.dumps({**manifest, "infill_order": order}))
    served = adapter_model(Adapter.open(run), CPU)
    assert served.infill_window is not None
    marked = Encoder((IM_START, IM_END, "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"))
    for tokenizer, can_keep in ((FileTokenizer(merged), False), (marked, True)):
        preparer = RequestPreparer(served, tokenizer, ServerLimits(1, 20_000, 60.0, 400), Defaults(Syntax.FREE))
        request = asyncio.run(preparer.prepare(GenerationRequest("", text=_PREFIX, suffix=_SUFFIX)))

        assert request.prompt == encode_infill_prompt(tokenizer, _PREFIX, _SUFFIX, served.infill_window, order)
        num_after = len(tokenizer.encode(_SUFFIX, add_special_tokens=False))
        assert request.num_after == (num_after if is_after and can_keep else 0)
