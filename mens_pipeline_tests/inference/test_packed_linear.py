"""Matrix products with packed weights."""

from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.inference.generate import PackedLinear, pack_linear


@pytest.mark.parametrize("rows", [(1,), (3, 1), (2, 70)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_is_that_of_the_plain_layer(rows: tuple[int, ...], bias: bool) -> None:  # noqa: FBT001 - pytest's way
    """Within the rounding of float32, for few rows and for many."""
    import torch

    torch.manual_seed(1)
    plain = torch.nn.Linear(48, 80, bias=bias)
    given = torch.randn(*rows, 48)
    with torch.inference_mode():
        torch.testing.assert_close(PackedLinear(plain)(given), plain(given), rtol=1e-5, atol=1e-5)


def test_a_model_answers_as_before(tiny_base: Path) -> None:
    """Every linear layer is packed, the head too, and the logits are the same within rounding."""
    import torch
    from transformers import AutoModelForCausalLM

    plain: Any = AutoModelForCausalLM.from_pretrained(tiny_base, dtype=torch.float32).eval()
    packed: Any = AutoModelForCausalLM.from_pretrained(tiny_base, dtype=torch.float32).eval()
    pack_linear(packed)
    ids = torch.arange(24).reshape(2, 12)

    assert not any(type(module) is torch.nn.Linear for module in packed.modules())
    with torch.inference_mode():
        torch.testing.assert_close(packed(ids).logits, plain(ids).logits, rtol=1e-4, atol=1e-5)


def test_other_kinds_of_numbers_stay() -> None:
    """What is not float32 is not packed."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4).bfloat16(), torch.nn.Linear(4, 4))
    pack_linear(model)

    assert [type(module) for module in model] == [torch.nn.Linear, PackedLinear]
