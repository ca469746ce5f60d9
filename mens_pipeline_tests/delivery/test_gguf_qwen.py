"""Qwen2, Qwen3 and Qwen3.5 as GGUF: llama.cpp computes what the merged model computes, from the same tokens."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mens_pipeline.delivery import gguf_model
from mens_pipeline.delivery.gguf_file import export, open_gguf, write_gguf
from mens_pipeline.delivery.gguf_model import refuse_unsupported, splitter_of
from mens_pipeline.delivery.merge_job import COMPARISONS, FIGURES, Comparison, GgufJob
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import Decoding, GenerationJob, Request
from mens_pipeline.models.chat import IM_END, IM_START
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline_tests.inference.llama_server import llama_server
from mens_pipeline_tests.training.small_folder import Encoder

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

_SIZES: dict[str, Any] = {
    "vocab_size": 321, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.2,
}  # fmt: skip
_KINDS: dict[str, dict[str, Any]] = {
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 32, "tie_word_embeddings": True},
    "qwen3_5_text": {
        "head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_section": [3, 3, 2],
        },
    },
}  # fmt: skip
"""Value heads of linear attention are twice its key heads: their order is not the same to both."""
_TEXT = "fn add(a: int, b: int) to int {\n    return a + 12\n}\n"


def _write_model(folder: Path, kind: str) -> Path:
    """A merged model of random weights, norms among them, and a tokenizer as Qwen has it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Tokenizer
    from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **_SIZES, **_KINDS[kind]))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    of_bytes = json.loads(Encoder().inner.to_str())["model"]
    tokenizer = (Qwen3_5Tokenizer if kind == "qwen3_5_text" else Qwen2Tokenizer)(
        vocab=of_bytes["vocab"], merges=[tuple(merge) for merge in of_bytes["merges"]], eos_token=IM_END
    )
    tokenizer.add_special_tokens({"additional_special_tokens": [IM_START]})
    tokenizer.chat_template = "{{ messages }}"
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", _KINDS)
def test_llama_cpp_computes_what_the_model_computes(kind: str, tmp_path: Path) -> None:
    """At every place of a text, to the precision of its cache, which keeps 16 bits."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = _write_model(tmp_path / "model", kind)
    refuse_unsupported(folder)
    write_gguf(folder, tmp_path / "model.gguf", "f32", kind, None)
    ids = AutoTokenizer.from_pretrained(folder)(_TEXT)["input_ids"]
    with torch.inference_mode():
        expected = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([ids])).logits[0].log_softmax(-1)
    found = open_gguf(tmp_path / "model.gguf", _SIZES["vocab_size"], 0, 128)

    assert len(ids) > 10
    for place in range(len(ids)):
        likely = found.next_scores(ids[: place + 1]).topk(20)
        assert likely.values == pytest.approx(expected[place][likely.indices], abs=0.05)


@pytest.mark.parametrize(("kind", "splitter"), [("qwen2", "qwen2"), ("qwen3_5_text", "qwen35")])
def test_llama_cpp_reads_the_same_tokens(kind: str, splitter: str, tmp_path: Path) -> None:
    """Digits one by one, blanks before a line end, letters with marks where they belong to a word."""
    from transformers import AutoTokenizer

    folder = _write_model(tmp_path / "model", kind)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = (_TEXT, "let x_1 = 12345\r\n\r\n  it's  \n", "caf\u00e9 \u0928\u092e\u0938\u094d\u0924\u0947 \u4f60\u597d")
    with llama_server(folder) as url:
        read = [httpx2.post(f"{url}/tokenize", json={"content": text}, timeout=60).json()["tokens"] for text in texts]

    assert splitter_of(folder) == splitter
    assert read == [tokenizer(text)["input_ids"] for text in texts]


def test_a_hybrid_is_read_back_by_llama_cpp(tmp_path: Path) -> None:
    """The library that reads the others knows none; completions and teacher-forced tokens are the same."""
    folder = _write_model(tmp_path / "model", "qwen3_5_text")
    shared: dict[str, Any] = {"run_dir": tmp_path / "run", "lock_path": tmp_path / "lock"}
    requests = tuple(Request(task=str(number), prompt=f"Add {number}.") for number in range(3))
    reference = GenerationJob(
        base_path=folder, adapter_path=None, quantization="none", double_quant=False, trained_in="float32",
        device="cpu", compute_dtype="float32", held="dense", label="gguf", system_prompt="You write Vox.",
        decoding=Decoding(max_new_tokens=12), requests=requests, **shared,
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    export(
        GgufJob(
            reference=reference, merged_path=folder, file_type="f32", file_name="tiny-f32.gguf", model_name="tiny",
            licence=None, **shared,
        )
    )  # fmt: skip
    found = list(read_models(tmp_path / "run" / COMPARISONS, Comparison))
    figures = json.loads((tmp_path / "run" / FIGURES).read_text())

    assert [one.candidate for one in found] == [one.reference for one in found]
    assert sum(one.num_led for one in found) == sum(len(one.reference.tokens) for one in found) > 3
    assert figures["num_tokens_changed"] == 0
    assert 0 < figures["largest_logit_difference"] < 0.05


def test_a_hybrid_needs_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing xllamacpp is refused before anything is written."""
    folder = _write_model(tmp_path / "model", "qwen3_5_text")
    monkeypatch.setattr(gguf_model, "find_spec", lambda _name: None)

    with pytest.raises(RefusedError, match=r"Qwen3_5ForCausalLM: .* xllamacpp is not installed\. .*llama"):
        refuse_unsupported(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layer_types": ["full_attention", "linear_attention"] * 2}, "layer_types out of turn"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"linear_value_head_dim": 16}, "linear_key_head_dim beside another linear_value_head_dim"),
    ],
)
def test_what_llama_cpp_would_compute_otherwise_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Layers in another order than each so many-th, windows, heads of two sizes."""
    folder = _write_model(tmp_path / "model", "qwen3_5_text")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))

    with pytest.raises(RefusedError, match=f"{words} is not written as GGUF"):
        refuse_unsupported(folder)
