"""Adapters and models of a base with vision have the names that other programs expect."""

import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.delivery.hub import name_as_published
from mens_pipeline.inference.generation import EvaluatedModel
from mens_pipeline.inference.model import load_evaluated, save_merged
from mens_pipeline.models.base import shapes_in
from mens_pipeline.training.qlora import load_base, lora_config
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.delivery.vision_base import write_vision_base

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries warn about their own future changes

_WEIGHTS = "adapter_model.safetensors"
_IDS = [list(range(5, 45))]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a vision tower."""
    return write_vision_base(tmp_path_factory.mktemp("vision") / "base")


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of the text model as training writes it, with second matrices that are not zero."""
    import torch
    from peft import get_peft_model

    torch.manual_seed(1)
    recipe = Recipe(lora_r=4, lora_alpha=8, bnb_4bit_compute_dtype="float32")
    model = load_base(base, recipe, "cpu", torch.float32)
    config = lora_config(recipe, model)
    config.init_lora_weights = False
    folder = tmp_path_factory.mktemp("adapter")
    get_peft_model(model, config).save_pretrained(folder, save_embedding_layers=False)
    return folder


def _logits(model: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(input_ids=torch.tensor(_IDS)).logits


def _rename_for_vllm(name: str) -> str:
    """Return the name in vLLM 0.32 for a name in a checkpoint of this class: `hf_to_vllm_mapper` of qwen3_vl.py."""
    rules = {
        "model.visual.": "visual.",
        "lm_head.": "language_model.lm_head.",
        "model.language_model.": "language_model.model.",
    }
    return next((new + name.removeprefix(old) for old, new in rules.items() if name.startswith(old)), name)


def test_a_sent_adapter_has_the_names_of_the_published_base(base: Path, adapter: Path, tmp_path: Path) -> None:
    """Every matrix finds its layer in vLLM; PEFT on the published class gives the same scores."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, Qwen3_5ForConditionalGeneration

    for path in adapter.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert name_as_published(tmp_path / _WEIGHTS, base)
    names = shapes_in(tmp_path / _WEIGHTS)
    layers = {name.removeprefix("base_model.model.").rsplit(".lora_", 1)[0] for name in names}
    published = {_rename_for_vllm(name) for file in base.glob("*.safetensors") for name in shapes_in(file)}
    ours = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
    theirs = PeftModel.from_pretrained(Qwen3_5ForConditionalGeneration.from_pretrained(base), tmp_path).eval()

    assert len(names) == len(shapes_in(adapter / _WEIGHTS)) == 2 * len(layers) > 50
    assert {f"{_rename_for_vllm(layer)}.weight" for layer in layers} <= published
    assert all(_rename_for_vllm(layer).startswith("language_model.model.layers.") for layer in layers)
    assert sum("lora_A" in name for name, _ in theirs.named_parameters()) == len(layers)
    torch.testing.assert_close(_logits(theirs), _logits(ours))


def test_an_adapter_of_a_plain_base_keeps_its_names_and_bytes(tiny_base: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file  # noqa: PLC0415 - loads torch

    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    save_file({name: torch.ones(4, 64)}, tmp_path / _WEIGHTS)
    before = (tmp_path / _WEIGHTS).read_bytes()

    assert not name_as_published(tmp_path / _WEIGHTS, tiny_base)
    assert (tmp_path / _WEIGHTS).read_bytes() == before


def test_a_merged_folder_has_the_names_of_the_text_model(base: Path, adapter: Path, tmp_path: Path) -> None:
    """Class and tensors agree, as llama.cpp and vLLM expect of a plain model; logits are those of the evaluation."""
    import torch
    from transformers import AutoModelForCausalLM

    job = EvaluatedModel(
        base_path=base,
        adapter_path=adapter,
        quantization="nf4",
        double_quant=True,
        trained_in="float32",
        device="cpu",
        compute_dtype="float32",
    )
    scored = load_evaluated(job)
    expected = _logits(scored)
    save_merged(scored, base, tmp_path / "model")
    names = shapes_in(tmp_path / "model" / "model.safetensors")
    config = json.loads((tmp_path / "model" / "config.json").read_text())

    assert config["architectures"] == ["Qwen3_5ForCausalLM"]
    assert {name.split(".")[1] for name in names} == {"embed_tokens", "layers", "norm"}
    assert not any("language_model" in name or "visual" in name for name in names)
    torch.testing.assert_close(
        _logits(AutoModelForCausalLM.from_pretrained(tmp_path / "model")), expected, rtol=0, atol=0
    )
