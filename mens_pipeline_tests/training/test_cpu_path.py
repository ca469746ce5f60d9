"""Training on a CPU computes what PEFT and transformers compute, on each architecture that is accepted."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: TID253 - loads in test processes that train
from torch.nn.functional import cross_entropy  # noqa: TID253 - likewise

from mens_pipeline.training.common_trainer import IGNORED
from mens_pipeline.training.cpu_kernels import fuse_adapters, replace_slow_parts
from mens_pipeline.training.qlora import keep_adapter_in_float32, load_base, lora_config
from mens_pipeline.training.recipe import Recipe
from mens_pipeline.training.sft import labelled_losses
from mens_pipeline_tests.architectures import ARCHITECTURES, write_architecture


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_step_equals_that_of_the_libraries(name: str, tmp_path: Path) -> None:
    """Losses, the gradient of every matrix of the adapter, and the matrices after an optimizer step."""
    (losses, before), (found, after) = _two_steps(write_architecture(tmp_path, name), torch.float32)

    assert losses.mean() > 1
    torch.testing.assert_close(found, losses, rtol=1e-4, atol=1e-4)
    assert before.keys() == after.keys()
    for matrix, (gradient, value) in before.items():
        assert gradient.norm() > 0, matrix
        assert _distance(after[matrix][0], gradient) < 1e-4, matrix
        assert _distance(after[matrix][1], value) < 1e-4, matrix


@pytest.mark.parametrize(("dtype", "in_eight_bits"), [(torch.bfloat16, False), (torch.float32, True)])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_step_in_fewer_bits_equals_that_of_the_libraries_up_to_rounding(
    name: str,
    dtype: torch.dtype,
    in_eight_bits: bool,  # noqa: FBT001 - of the test
    tmp_path: Path,
) -> None:
    """Gradients are compared together: those of a matrix with little influence are noise in both."""
    (losses, before), (found, after) = _two_steps(
        write_architecture(tmp_path, name), dtype, in_eight_bits=in_eight_bits
    )
    whole, expected = (torch.cat([each[matrix][0].flatten() for matrix in sorted(before)]) for each in (after, before))

    assert _distance(found, losses) < 0.02
    assert _distance(whole, expected) < (0.2 if in_eight_bits else 0.08)


@pytest.mark.parametrize(
    ("name", "fields", "described"),
    [
        ("llama", {}, "by products"),
        ("qwen2", {}, "by products"),
        ("qwen3", {}, "by products"),
        ("mistral", {}, "by products"),
        ("mistral-windowed", {}, "by transformers, for a sliding window"),
        ("qwen2", {"attention_dropout": 0.1}, "by transformers, for attention dropout"),
        ("gemma3_text", {}, "by transformers, for gemma3_text"),
        ("qwen3_5_text", {}, "by transformers, for qwen3_5_text"),
    ],
)
def test_leaves_attention_that_is_more_than_causal_to_the_libraries(
    name: str, fields: dict[str, Any], described: str, tmp_path: Path
) -> None:
    model = load_adapted(write_architecture(tmp_path, name, **fields), torch.float32)

    assert replace_slow_parts(model, torch.float32).endswith(f"; attention {described}")
    assert (model.get_base_model().config._attn_implementation == "sdpa") == ("transformers" in described)  # noqa: SLF001 - where the library keeps it


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"lora_dropout": 0.5}, "dropout"),
        ({"use_dora": True}, "a variant of LoRA"),
        ({"bias": "lora_only"}, "a bias that trains"),
        ({"use_rslora": True}, None),
    ],
)
def test_leaves_layers_that_cannot_be_fused_to_the_libraries(
    options: dict[str, Any], reason: str | None, tmp_path: Path
) -> None:
    plain = load_adapted(write_architecture(tmp_path, "qwen2"), torch.float32, **options)
    fast = deepcopy(plain)
    layers = fuse_adapters(fast, torch.float32)
    (losses, before), (found, after) = _step(plain, plain_losses), _step(fast, fast_losses)
    num_kept = 0 if reason is None else 6 if reason == "a bias that trains" else 14

    assert layers == Counter({None: 14 - num_kept, reason: num_kept} if num_kept else {None: 14})
    torch.testing.assert_close(found, losses, rtol=1e-4, atol=1e-4)
    assert all(_distance(after[matrix][0], gradient) < 1e-4 for matrix, (gradient, _) in before.items())


def test_leaves_other_layers_and_several_adapters_to_the_libraries(tmp_path: Path) -> None:
    base = write_architecture(tmp_path, "llama")
    whole, several = (load_adapted(base, torch.float32, quantization=quantization) for quantization in ("bf16", "nf4"))
    several.add_adapter("other", several.peft_config["default"])

    assert replace_slow_parts(whole, torch.float32).startswith(
        "0 of 14 adapted layers fused, PEFT computes 14 with Linear;"
    )
    assert "PEFT computes 14 with several adapters" in replace_slow_parts(several, torch.float32)


def test_a_fused_layer_with_a_disabled_adapter_computes_the_base(tmp_path: Path) -> None:
    plain = load_adapted(write_architecture(tmp_path, "qwen2"), torch.float32)
    fast = deepcopy(plain)
    replace_slow_parts(fast, torch.float32)
    with fast.disable_adapter(), plain.disable_adapter():
        found, expected = fast_losses(fast, padded_batch()), plain_losses(plain, padded_batch())

    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (fast_losses(fast, padded_batch()) - found).abs().max() > 0.1


def load_adapted(folder: Path, dtype: torch.dtype, quantization: str = "nf4", **options: Any) -> Any:
    """Load a model with an adapter, whose weights are not the zeros that training starts from."""
    from peft import get_peft_model

    recipe = Recipe(lora_r=4, lora_alpha=8, quantization=quantization)
    base = load_base(folder, recipe, "cpu", dtype)
    config = lora_config(recipe, base)
    for option, value in options.items():
        setattr(config, option, value)
    model = get_peft_model(base, config)
    keep_adapter_in_float32(model)
    torch.manual_seed(1)
    for matrix, parameter in model.named_parameters():
        if "lora_B" in matrix:
            torch.nn.init.normal_(parameter, std=0.05)
    return model.train()


def padded_batch() -> dict[str, torch.Tensor]:
    """Three rows with a shared beginning, padded on the right, with labels after that beginning."""
    torch.manual_seed(2)
    ids = torch.randint(200, (3, 24))
    ids[:, :6] = ids[0, :6]
    mask = torch.ones_like(ids)
    mask[1, 20:], mask[2, 15:] = 0, 0
    labels = ids.masked_fill(mask == 0, IGNORED)
    labels[:, :9] = IGNORED
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def plain_losses(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = model(**{**batch, "labels": None}).logits[:, :-1]
    wanted = batch["labels"][:, 1:]
    return cross_entropy(logits.float().transpose(1, 2), wanted, reduction="none")[wanted != IGNORED]


def fast_losses(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    labels = batch["labels"][:, 1:]
    return labelled_losses(model.get_base_model(), batch, labels != IGNORED, labels)


def _step(
    model: Any, compute: Callable[[Any, Any], torch.Tensor]
) -> tuple[torch.Tensor, dict[str, tuple[torch.Tensor, torch.Tensor]]]:
    """Return losses, and by name the gradient of each trained parameter and its value after an optimizer step."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    is_low = model.get_base_model().dtype == torch.bfloat16
    torch.manual_seed(3)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_low):
        losses = compute(model, padded_batch())
        losses.mean().backward()
    torch.optim.AdamW(trained.values(), lr=1e-3).step()
    return losses.detach(), {name: (each.grad, each.detach()) for name, each in trained.items()}


def _two_steps(base: Path, dtype: torch.dtype, *, in_eight_bits: bool = False) -> Any:
    """Run a step of the libraries, and one of ours."""
    plain = load_adapted(base, dtype)
    fast = deepcopy(plain)
    replace_slow_parts(fast, dtype, in_eight_bits=in_eight_bits)
    return _step(plain, plain_losses), _step(fast, fast_losses)


def _distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())
