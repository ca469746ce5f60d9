"""A server whose tokens llama.cpp computes: what it serves is what ours serves, and it starts with what it needs."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.inference.model import load_evaluated
from mens_pipeline.language import analyze
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.chat import IM_END, IM_START
from mens_pipeline.serving import llama_cpp
from mens_pipeline.serving.llama_cpp import load_llama_cpp, with_llama_cpp
from mens_pipeline.serving.queue import Limits
from mens_pipeline.serving.served_model import ServedModel, adapter_model
from mens_pipeline_tests.serving.running import CPU, Running, running
from mens_pipeline_tests.serving.talkative import write_talkative, write_taught_run
from mens_pipeline_tests.training.small_folder import Encoder

if TYPE_CHECKING:
    from mens_pipeline.inference.llama_cpp import LlamaCpp

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

_LIMITS = Limits(2, 20_000, 60.0, 400)
_PREFIX, _SUFFIX = "fn double(n: int) to int {\n    return n ", "\n}\n"
_MARKS = ("<issue_start>", "<issue_closed>", "<issue_comment>")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    """A run that was shown holes; its weights know nothing of Vox."""
    folder = tmp_path_factory.mktemp("llama")
    base = write_talkative(folder / "base", Encoder((IM_START, IM_END, *_MARKS)).inner)
    return adapter_model(Adapter.open(write_taught_run(folder / "run", base)), CPU)


@pytest.fixture(scope="module")
def exact(served: ServedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    """The same for llama.cpp, with the weights as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llama_cpp, "_TYPE", "f32")
        yield with_llama_cpp(served, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def theirs(exact: ServedModel) -> Iterator[Running]:
    """A server whose tokens llama.cpp computes."""
    with running(exact, _LIMITS, syntax=Syntax.FALLBACK) as server:
        yield server


def _post(server: Running, path: str, **fields: Any) -> Any:
    with server.http() as client:
        return client.post(path, json=fields).json()


def test_both_engines_write_the_same(served: ServedModel, theirs: Running) -> None:
    """By the most likely token, at a cursor, behind a text, and for a prompt."""
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 24, "decoding": "free"}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/infill", {"input_prefix": _PREFIX, "input_suffix": _SUFFIX, "n_predict": 12}),
        ("/infill", {"input_prefix": "let x = ", "input_suffix": "\n", "n_predict": 6}),
        ("/v1/completions", {"prompt": "fn f() {\n", "max_tokens": 12}),
        ("/v1/chat/completions", chat),
    ]
    with running(served, _LIMITS, syntax=Syntax.FALLBACK) as ours:
        for path, body in asked:
            first, second = (_post(server, path, **({"model": "mens"} | body)) for server in (ours, theirs))
            assert _text(first) == _text(second), (path, body)


def _text(reply: dict[str, Any]) -> str:
    if "choices" not in reply:
        return str(reply["content"])
    (choice,) = reply["choices"]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def test_programs_are_constrained_as_with_ours(theirs: Running) -> None:
    """Among the tokens that llama.cpp tells of; so the programs of random weights are other ones, and all parse."""
    for decoding in ("constrained", "fallback"):
        fields = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 48, "decoding": decoding}
        text = _text(_post(theirs, "/v1/chat/completions", model="mens", **fields))
        assert text
        assert analyze(text).ok, text


def test_whatever_is_drawn_stands_or_is_withheld(theirs: Running) -> None:
    """At a temperature, where what is drawn freely hardly ever does."""
    shown = 0
    for seed in range(8):
        body = {"input_prefix": "let x = ", "input_suffix": "\n", "n_predict": 16, "temperature": 1.2, "seed": seed}
        piece = _post(theirs, "/infill", **body)["content"]
        shown += bool(piece)
        assert not piece or analyze(f"let x = {piece}\n").ok

    assert shown > 0


def test_it_tells_what_our_engine_computes(served: ServedModel, exact: ServedModel) -> None:
    """Of each position, half of a character included; what was read of the tokens before is kept."""
    import torch

    assert exact.gguf is not None
    model: LlamaCpp = load_llama_cpp(exact, exact.gguf, 2).model
    ours = load_evaluated(served.evaluated)
    tokens = [9, 11]
    for step in range(24):
        scores = model.next_scores(tokens)
        with torch.inference_mode():
            expected = ours(input_ids=torch.tensor([tokens])).logits[0, -1].log_softmax(-1)
        assert scores.shape == expected.shape
        assert bool(torch.isfinite(scores).all())
        likely = expected.topk(32).indices
        # Keys and values are kept in 16 bits.
        assert (scores[likely] - expected[likely]).abs().max() < 0.3
        tokens.append(int(expected.argmax()) if step % 2 else 5 + 11 * step)


def test_what_cannot_go_on_is_an_error(exact: ServedModel) -> None:
    """And no completion."""
    assert exact.gguf is not None
    model: LlamaCpp = load_llama_cpp(exact, exact.gguf, 1).model
    with pytest.raises(RuntimeError, match=r"llama\.cpp: request \(9999 tokens\) exceeds"):
        model.next_scores([5] * 9999)


def test_its_file_is_written_once(served: ServedModel, tmp_path: Path) -> None:
    """By the digest of the adapter, in 8 bits, whole; nothing else is left."""
    chosen = with_llama_cpp(served, tmp_path)
    assert chosen.gguf is not None
    load_llama_cpp(chosen, chosen.gguf, 1)
    written = (chosen.gguf / "model.gguf").stat()
    load_llama_cpp(chosen, chosen.gguf, 1)

    assert (chosen.gguf / "model.gguf").stat() == written
    assert [path.name for path in chosen.gguf.parent.iterdir()] == [chosen.gguf.name]
    assert with_llama_cpp(replace(served, sha256="0" * 64), tmp_path).gguf != chosen.gguf


def test_what_is_missing_is_one_line(served: ServedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra, a CPU, an architecture that is written as GGUF."""
    on_gpu = replace(served, evaluated=served.evaluated.model_copy(update={"device": "cuda"}))
    with pytest.raises(ConfigurationError, match=r"--engine llama\.cpp: computes on the CPU here\. Add --device cpu"):
        with_llama_cpp(on_gpu, tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    other = replace(served, evaluated=served.evaluated.model_copy(update={"base_path": tmp_path}))
    with pytest.raises(RefusedError, match="GPT2LMHeadModel is not written as GGUF"):
        with_llama_cpp(other, tmp_path)
    monkeypatch.setattr(llama_cpp, "find_spec", lambda name: None if name == "xllamacpp" else object())
    with pytest.raises(ConfigurationError, match=r"xllamacpp: not installed\. Run: pip install .*\[llama\]"):
        with_llama_cpp(served, tmp_path)
