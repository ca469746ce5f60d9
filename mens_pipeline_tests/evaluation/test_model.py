"""The dense model that is judged against the four-bit model that was trained."""

import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.generation import Decoding, GenerationJob
from mens_pipeline.evaluation.model import load_judged
from mens_pipeline.evaluation.prepare import WEIGHTS
from mens_pipeline.training.qlora import load_base
from mens_pipeline.training.recipe import Recipe

# PEFT 0.21.2 asks transformers 5.23.0 for a property by its old name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

_PROMPT = list(b"Write a function `double` in Vox.")


def _job(base: Path, adapter: Path | None, **fields: Any) -> GenerationJob:
    usual: dict[str, Any] = {
        "base_path": base,
        "adapter_path": adapter,
        "quantization": "nf4",
        "double_quant": True,
        "trained_in": "float32",
        "device": "cpu",
        "compute_dtype": "float32",
        "system_prompt": "",
        "decoding": Decoding(),
        "requests": (),
        "run_dir": base,
        "lock_path": base,
    }
    return GenerationJob(**{**usual, **fields})


def _four_bit(base: Path) -> Any:
    """The model as it is trained; in evaluation mode bitsandbytes has CPUs compute in bfloat16."""
    import torch

    return load_base(base, Recipe(bnb_4bit_compute_dtype="float32"), "cpu", torch.float32)


@pytest.fixture(scope="module")
def adapter(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes what the model says: its second matrices are not zero."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(_four_bit(tiny_base), config)
    folder = tmp_path_factory.mktemp("adapter")
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
    output = model.generate(ids, attention_mask=mask, max_new_tokens=40, do_sample=False, eos_token_id=-1)
    tokens: list[int] = output[0, ids.shape[1] :].tolist()
    return tokens


def test_the_restored_base_is_the_four_bit_base(tiny_base: Path) -> None:
    """Bit for bit the same numbers, and so greedily the same tokens."""
    import torch

    restored, four_bit = load_judged(_job(tiny_base, None)), _four_bit(tiny_base).train()

    torch.testing.assert_close(_logits(restored), _logits(four_bit), rtol=0, atol=0)
    assert _greedy(restored) == _greedy(four_bit)


def test_the_merged_adapter_is_the_adapter_on_four_bits(tiny_base: Path, adapter: Path) -> None:
    """The same numbers to rounding, and greedily the same tokens, which are not those of the base."""
    import torch
    from peft import PeftModel

    merged = load_judged(_job(tiny_base, adapter))
    on_four_bit = PeftModel.from_pretrained(_four_bit(tiny_base), adapter).train()

    torch.testing.assert_close(_logits(merged), _logits(on_four_bit), rtol=1e-4, atol=1e-5)
    assert _greedy(merged) == _greedy(on_four_bit)
    assert _greedy(merged) != _greedy(load_judged(_job(tiny_base, None)))


def test_the_base_without_quantisation_is_itself(tiny_base: Path) -> None:
    """Nothing is rounded that was not rounded in training."""
    import torch
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(tiny_base).eval()

    torch.testing.assert_close(_logits(load_judged(_job(tiny_base, None, quantization="none"))), _logits(plain))


def test_an_adapter_that_does_not_fit_is_refused(tiny_base: Path, adapter: Path, tmp_path: Path) -> None:
    """Its matrices have another rank than its configuration says."""
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**settings, "r": 8}))
    (tmp_path / WEIGHTS).write_bytes((adapter / WEIGHTS).read_bytes())

    with pytest.raises(RefusedError, match=r"r is 8, adapter_model\.safetensors holds matrices of rank \d+\. Name the"):
        load_judged(_job(tiny_base, tmp_path))
