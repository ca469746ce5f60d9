"""Parts of a model that are replaced on a CPU compute the same results."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: TID253 - loads in test processes that train
from torch.nn.functional import cross_entropy  # noqa: TID253 - likewise

from mens_pipeline.models.eight_bits import Rounded, round_rows
from mens_pipeline.training import cpu_kernels
from mens_pipeline.training.common_trainer import CommonTrainer
from mens_pipeline.training.cpu_kernels import (
    fuse_adapters,
    hidden_states,
    is_causal,
    num_shared,
    token_losses,
    use_causal_products,
)
from mens_pipeline_tests.training.test_cpu_path import load_adapted


def _step(model: Any, ids: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
        hidden = model.get_base_model().base_model(input_ids=ids, use_cache=False).last_hidden_state
        # Not their mean square, which the last norm keeps constant.
        (hidden.float() * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return hidden.detach().float(), gradients


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_losses_of_tokens_are_the_cross_entropy(dtype: torch.dtype, tolerance: float, bias: float) -> None:
    """For more positions than are scored at once, each with its own weight; also without gradients."""
    torch.manual_seed(1)
    head = torch.nn.Linear(16, 300, bias=bool(bias), dtype=dtype).requires_grad_(requires_grad=False)
    hidden, wanted = torch.randn(300, 16, dtype=dtype, requires_grad=True), torch.randint(300, (300,))
    weights = torch.linspace(0.1, 2, 300)
    expected = cross_entropy(head(hidden).float(), wanted, reduction="none")
    (gradients,) = torch.autograd.grad((expected * weights).sum(), hidden)
    found = token_losses(hidden, head, wanted)
    (found * weights).sum().backward()

    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(hidden.grad, gradients, rtol=tolerance, atol=tolerance)
    with torch.no_grad():
        assert torch.equal(token_losses(hidden, head, wanted), found)


@pytest.mark.parametrize(("certainty", "is_sparse"), [(20.0, True), (0.0, False)])
def test_a_gradient_leaves_out_improbable_tokens(certainty: float, is_sparse: bool) -> None:  # noqa: FBT001 - of the test
    """Unless all of the 200,000 tokens are equally improbable."""
    torch.manual_seed(1)
    shares = torch.full((3, 200_000), 1 / 200_000)
    shares[:, :40] += certainty
    shares /= shares.sum(1, keepdim=True)
    shares[torch.arange(3), torch.arange(3)] -= 1
    weight = torch.randn(200_000, 8)
    found, expected = cpu_kernels._multiply_head(shares, weight), shares @ weight  # noqa: SLF001 - reached by no loss

    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert torch.equal(found, expected) != is_sparse


class _Fused:
    """A trainer of the library, whose fused optimizer changes weights without notifying autograd."""

    trained: Sequence[torch.nn.Parameter]

    def create_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.trained, lr=0.1, fused=True)


class _Trainer(CommonTrainer, _Fused):
    pass


def _sgd(trained: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(trained, lr=0.5)


def _adam(trained: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
    trainer = _Trainer()
    trainer.trained = trained
    optimizer: torch.optim.Optimizer = trainer.create_optimizer()
    return optimizer


@pytest.mark.parametrize("make", [_sgd, _adam])
def test_a_fused_layer_follows_its_adapter(
    tiny_base: Path, make: Callable[[Sequence[torch.nn.Parameter]], torch.optim.Optimizer]
) -> None:
    """A copy of the adapter in low precision that outlived an optimizer step would train on old weights."""
    model = load_adapted(tiny_base, torch.float32)
    ids = torch.arange(24).reshape(1, 24)
    twin = deepcopy(model)
    fuse_adapters(model, torch.float32)
    before = _step(model, ids, torch.float32)[0]
    for each in (model, twin):
        optimizer = make([p for p in each.parameters() if p.requires_grad])
        _step(each, ids, torch.float32)
        optimizer.step()

    after, expected = (_step(each, ids, torch.float32)[0] for each in (model, twin))
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-4)
    assert (after - before).abs().max() > 1e-2


def test_padding_on_the_right_does_not_change_a_row(tiny_base: Path) -> None:
    model = load_adapted(tiny_base, torch.float32)
    use_causal_products(model)
    row = torch.arange(12).reshape(1, 12)
    padded = torch.cat([row, torch.full((1, 5), 7)], dim=1)
    alone, beside = _step(model, row, torch.float32)[0], _step(model, padded, torch.float32)[0]

    torch.testing.assert_close(beside[:, :12], alone)


def test_the_shared_beginning_of_rows_is_computed_once(tiny_base: Path) -> None:
    model = load_adapted(tiny_base, torch.float32)
    use_causal_products(model)
    ids = torch.arange(5 * 16).reshape(5, 16) % 200
    ids[:, :6] = ids[0, :6]
    factors = torch.linspace(-1, 1, 5 * 10 * 64).view(5, 10, 64)
    decoder = model.get_base_model().base_model

    def step(states: torch.Tensor) -> list[torch.Tensor]:
        model.zero_grad()
        (states * factors).sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    assert is_causal(model.get_base_model())
    assert num_shared(ids) == 6
    apart = decoder(input_ids=ids, use_cache=False).last_hidden_state[:, 6:]
    together = hidden_states(decoder, ids, 6)
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(step(together), step(apart), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("rows", "number"), [([[1, 2, 3]], 0), ([[1, 2, 3], [1, 2, 3]], 0), ([[1, 2, 3], [1, 4, 3]], 1), ([[1], [2]], 0)]
)
def test_counts_the_tokens_that_all_rows_begin_with(rows: list[list[int]], number: int) -> None:
    """A single row shares none, nor do rows that do not differ before their last token."""
    assert num_shared(torch.tensor(rows)) == number


def test_inputs_of_several_layers_are_rounded_once_until_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    rounded: list[torch.Size] = []

    def round_and_count(rows: torch.Tensor) -> Rounded:
        rounded.append(rows.shape)
        return round_rows(rows)

    monkeypatch.setattr(cpu_kernels, "round_rows", round_and_count)
    one, other = (cpu_kernels._RoundedWeight(torch.randn(4, 6)) for _ in range(2))  # noqa: SLF001 - what a layer holds
    inputs = torch.randn(1, 3, 6)
    first = one.forward(inputs.reshape(-1, 6))
    other.forward(inputs.reshape(-1, 6))
    assert len(rounded) == 1

    inputs.mul_(2)
    torch.testing.assert_close(one.forward(inputs.reshape(-1, 6)), 2 * first)
    one.forward(inputs.clone().reshape(-1, 6))
    assert len(rounded) == 3
