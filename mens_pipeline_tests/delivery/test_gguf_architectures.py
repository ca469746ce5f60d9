"""Each architecture as GGUF: llama.cpp computes the same from the same tokens, or the architecture is rejected."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mens_pipeline.delivery import gguf
from mens_pipeline.delivery.agreement import COMPARISONS, FIGURES, GgufJob, PromptComparison
from mens_pipeline.delivery.gguf import LlamaCpp, export, find_splitter, refuse_unsupported, write_gguf
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import Decoding, Generation, Request
from mens_pipeline.models.chat import IM_END, IM_START
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline_tests.architectures import ARCHITECTURES, write_architecture
from mens_pipeline_tests.inference.llama_server import llama_server
from mens_pipeline_tests.training.small_folder import Encoder

_WRITTEN = ("llama", "qwen2", "qwen2-untied", "qwen3", "qwen3_5_text")
_REJECTED = {
    "llama-biased": "attention_bias, mlp_bias",
    "gemma3_text": "Gemma3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mistral-windowed": "MistralForCausalLM",
}
_TEXT = "fn add(a: int, b: int) to int {\n    return a + 12\n}\n"


def _write_model(folder: Path, name: str) -> Path:
    from transformers import Qwen2Tokenizer
    from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

    encoder = Encoder().inner
    write_architecture(folder, name, encoder, vocab_size=321)
    if name.startswith("qwen"):
        of_bytes = json.loads(encoder.to_str())["model"]
        tokenizer = (Qwen3_5Tokenizer if name == "qwen3_5_text" else Qwen2Tokenizer)(
            vocab=of_bytes["vocab"], merges=[tuple(merge) for merge in of_bytes["merges"]], eos_token=IM_END
        )
        tokenizer.add_special_tokens({"additional_special_tokens": [IM_START]})
        tokenizer.chat_template = "{{ messages }}"
        tokenizer.save_pretrained(folder)
    return folder


def test_every_architecture_is_written_or_rejected() -> None:
    assert sorted((*_WRITTEN, *_REJECTED)) == sorted(ARCHITECTURES)


@pytest.mark.parametrize(("name", "found"), _REJECTED.items())
def test_rejects_other_architectures_by_name(name: str, found: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=rf"{found} is not supported in GGUF.* convert_hf_to_gguf\.py"):
        refuse_unsupported(_write_model(tmp_path / "model", name))


@pytest.mark.parametrize("name", _WRITTEN)
def test_llama_cpp_computes_the_scores_of_the_model(name: str, tmp_path: Path) -> None:
    """At every position of a text, up to the precision of its cache, which keeps 16 bits."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = _write_model(tmp_path / "model", name)
    refuse_unsupported(folder)
    write_gguf(folder, tmp_path / "model.gguf", "f32", name, None)
    ids = AutoTokenizer.from_pretrained(folder)(_TEXT)["input_ids"]
    with torch.inference_mode():
        expected = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([ids])).logits[0].log_softmax(-1)
    found = LlamaCpp(tmp_path / "model.gguf", expected.shape[-1], 0, 128)

    assert len(ids) > 10
    for place in range(len(ids)):
        likely = found.next_scores(ids[: place + 1]).topk(20)
        assert likely.values == pytest.approx(expected[place][likely.indices], abs=0.05)


@pytest.mark.parametrize(("kind", "splitter"), [("qwen2", "qwen2"), ("qwen3_5_text", "qwen35")])
def test_llama_cpp_reads_the_same_tokens(kind: str, splitter: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = _write_model(tmp_path / "model", kind)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = (_TEXT, "let x_1 = 12345\r\n\r\n  it's  \n", "caf\u00e9 \u0928\u092e\u0938\u094d\u0924\u0947 \u4f60\u597d")
    with llama_server(folder) as url:
        read = [httpx2.post(f"{url}/tokenize", json={"content": text}, timeout=60).json()["tokens"] for text in texts]

    assert find_splitter(folder) == splitter
    assert read == [tokenizer(text)["input_ids"] for text in texts]


@pytest.mark.parametrize("name", _WRITTEN)
def test_the_file_completes_like_the_model(name: str, tmp_path: Path) -> None:
    folder = _write_model(tmp_path / "model", name)
    shared: dict[str, Any] = {"run_dir": tmp_path / "run", "lock_path": tmp_path / "lock"}
    requests = tuple(Request(task=str(number), prompt=f"Add {number}.") for number in range(3))
    reference = Generation(
        base_path=folder, base_sha256="", adapter_path=None, adapter_sha256=None,
        quantization="none", double_quant=False, trained_in="float32",
        device="cpu", compute_dtype="float32", held="dense", label="gguf", system_prompt="You write Vox.",
        decoding=Decoding(max_new_tokens=12), requests=requests,
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    export(
        GgufJob(
            reference=reference, merged_path=folder, file_type="f32", file_name="tiny-f32.gguf", model_name="tiny",
            licence=None, **shared,
        )
    )  # fmt: skip
    found = list(read_models(tmp_path / "run" / COMPARISONS, PromptComparison))
    figures = json.loads((tmp_path / "run" / FIGURES).read_text())

    assert [one.candidate for one in found] == [one.reference for one in found]
    assert sum(one.num_led for one in found) == sum(len(one.reference.tokens) for one in found) > 3
    assert figures["num_tokens_changed"] == 0
    assert figures["largest_logit_difference"] < 0.05
    assert (figures["largest_logit_difference"] > 0) == (name == "qwen3_5_text")


def test_a_hybrid_needs_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _write_model(tmp_path / "model", "qwen3_5_text")
    monkeypatch.setattr(gguf, "find_spec", lambda _name: None)

    with pytest.raises(RefusedError, match=r"Qwen3_5ForCausalLM: .* xllamacpp is not installed\. .*llama"):
        refuse_unsupported(folder)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("qwen3", {"head_dim": 64}, "head_dim 64"),
        ("qwen3_5_text", {"layer_types": ["full_attention", "linear_attention"] * 2}, "irregular layer_types"),
        ("qwen3_5_text", {"use_sliding_window": True}, "use_sliding_window"),
        ("qwen3_5_text", {"linear_value_head_dim": 16}, "linear_key_head_dim unlike linear_value_head_dim"),
    ],
)
def test_rejects_settings_that_llama_cpp_computes_differently(
    name: str, change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    folder = _write_model(tmp_path / "model", name)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))

    with pytest.raises(RefusedError, match=f"{words} is not supported in GGUF"):
        refuse_unsupported(folder)
