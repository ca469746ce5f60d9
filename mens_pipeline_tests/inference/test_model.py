"""The dense model that is evaluated, compared with the four-bit model that was trained."""

from pathlib import Path
from typing import Any, Final

import pytest

from mens_pipeline.inference.generation import Dtype, EvaluatedModel
from mens_pipeline.inference.model import load_evaluated, save_merged
from mens_pipeline.inference.prepare import held_on
from mens_pipeline.jobs.device import Device
from mens_pipeline.training.qlora import begin_evaluation, load_base
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.architectures import EACH, write_architecture

_PROMPT = list(b"Write a function `double` in Vox.")


def _job(base: Path, adapter: Path | None, **fields: Any) -> EvaluatedModel:
    usual: dict[str, Any] = {
        "base_path": base,
        "adapter_path": adapter,
        "quantization": "nf4",
        "double_quant": True,
        "trained_in": "float32",
        "device": "cpu",
        "compute_dtype": "float32",
    }
    return EvaluatedModel(**{**usual, **fields})


def _four_bit(base: Path) -> Any:
    """The model as it is trained; in evaluation mode bitsandbytes has CPUs compute in bfloat16."""
    import torch

    return load_base(base, Recipe(bnb_4bit_compute_dtype="float32"), "cpu", torch.float32)


@pytest.fixture(scope="module")
def adapter(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of the tiny base."""
    return _write_adapter(tiny_base, tmp_path_factory.mktemp("adapter"))


def _write_adapter(base: Path, folder: Path) -> Path:
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(_four_bit(base), config)
    model.save_pretrained(folder, save_embedding_layers=False)
    return folder


def _logits(model: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(torch.tensor([_PROMPT])).logits


def _greedy(model: Any) -> list[int]:
    import torch

    ids = torch.tensor([_PROMPT])
    mask = torch.ones_like(ids)
    output = model.generate(ids, attention_mask=mask, max_new_tokens=24, do_sample=False, eos_token_id=-1)
    tokens: list[int] = output[0, ids.shape[1] :].tolist()
    return tokens


@pytest.mark.parametrize("name", EACH)
def test_the_restored_base_equals_the_four_bit_base(name: str, tmp_path: Path) -> None:
    import torch

    base = write_architecture(tmp_path, name)
    restored, four_bit = load_evaluated(_job(base, None)), _four_bit(base)
    begin_evaluation(four_bit)

    torch.testing.assert_close(_logits(restored), _logits(four_bit), rtol=0, atol=0)
    assert _greedy(restored) == _greedy(four_bit)


@pytest.mark.parametrize("name", EACH)
def test_the_merged_adapter_equals_the_adapter_on_four_bits(name: str, tmp_path: Path) -> None:
    """Logits are equal up to rounding, and greedy tokens are equal; also after loading the merged folder."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = write_architecture(tmp_path / "base", name)
    adapter = _write_adapter(base, tmp_path / "adapter")
    merged = load_evaluated(_job(base, adapter))
    adapted = PeftModel.from_pretrained(_four_bit(base), adapter)
    begin_evaluation(adapted)
    save_merged(merged, base, tmp_path / "merged")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()

    expected = _logits(adapted)
    torch.testing.assert_close(_logits(merged), expected, rtol=1e-3, atol=1e-4)
    assert torch.equal(_logits(loaded), _logits(merged))
    assert _greedy(loaded) == _greedy(merged) == _greedy(adapted)
    assert (_logits(load_evaluated(_job(base, None))) - expected).abs().max() > 0.1


def test_a_base_without_quantisation_is_loaded_unchanged(tiny_base: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(tiny_base).eval()

    torch.testing.assert_close(_logits(load_evaluated(_job(tiny_base, None, quantization="none"))), _logits(plain))


def test_a_model_evaluated_in_bfloat16_equals_the_saved_one(tiny_base: Path, adapter: Path, tmp_path: Path) -> None:
    """Exactly, since the frequencies of positions are not rounded with the weights."""
    import torch
    from transformers import AutoModelForCausalLM

    scored = load_evaluated(_job(tiny_base, adapter, trained_in="bfloat16", compute_dtype="bfloat16"))
    scored.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()

    assert {parameter.dtype for parameter in scored.parameters()} == {torch.bfloat16}
    assert {buffer.dtype for name, buffer in scored.named_buffers() if "inv_freq" in name} == {torch.float32}
    torch.testing.assert_close(_logits(scored), _logits(loaded), rtol=0, atol=0)


def test_a_model_in_four_bits_equals_the_dense_one(tiny_base: Path, adapter: Path) -> None:
    import torch
    from bitsandbytes.nn import Linear4bit

    dense, held = load_evaluated(_job(tiny_base, adapter)), load_evaluated(_job(tiny_base, adapter, held="nf4"))
    # bitsandbytes 0.50 computes in bfloat16 on a CPU, except for a model that trains.
    logits = _logits(held.train())

    assert sum(isinstance(module, Linear4bit) for module in held.modules()) == 14
    assert any("lora_A" in name for name, _ in held.named_parameters())
    torch.testing.assert_close(logits, _logits(dense), rtol=1e-4, atol=1e-4)


_QWEN: Final = 4_205_000_000
"""Values of the text part of Qwen3.5-4B."""


@pytest.mark.parametrize(
    ("gigabytes", "has_bfloat16", "trained_in", "expected"),
    [
        (5.8, True, "bfloat16", ("nf4", "bfloat16")),
        (7.8, True, "bfloat16", ("nf4", "bfloat16")),
        (11.9, True, "bfloat16", ("dense", "bfloat16")),
        (14.6, False, "float32", ("nf4", "float32")),
        (31.7, False, "float32", ("dense", "float32")),
        (15.7, True, "float32", ("nf4", "float32")),
    ],
    ids=["6 GB", "8 GB", "12 GB", "T4", "V100 32 GB", "trained on a T4"],
)
def test_a_model_that_fits_in_training_fits_in_evaluation(
    gigabytes: float,
    has_bfloat16: bool,  # noqa: FBT001 - of the GPU
    trained_in: Dtype,
    expected: tuple[str, str],
) -> None:
    """Dense if that fits, otherwise in four bits; a GPU that only emulates bfloat16 does not compute in it."""
    gpu = Device("cuda", "a GPU", gigabytes, has_bfloat16=has_bfloat16)

    assert held_on(gpu, _QWEN, trained_in) == expected
    assert held_on(Device("cpu", "cores", None, has_bfloat16=True), _QWEN, trained_in) == ("dense", "float32")
