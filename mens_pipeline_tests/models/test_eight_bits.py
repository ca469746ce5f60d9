"""Products in eight bits equal those of the full weight, up to rounding."""

import pytest
import torch  # noqa: TID253 - loads in test processes that train

from mens_pipeline.models import eight_bits
from mens_pipeline.models.eight_bits import EightBits, round_rows


@pytest.fixture(autouse=True, params=[True, False])
def has_vnni(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply as on CPUs with VNNI and without it; both work on any CPU with AVX2."""
    monkeypatch.setattr(eight_bits, "_HAS_VNNI", request.param)


@pytest.mark.parametrize(("outputs", "inputs"), [(64, 32), (33, 70), (1, 7)])
def test_the_product_of_a_row_does_not_depend_on_other_rows(outputs: int, inputs: int) -> None:
    """Large, small and zero rows."""
    torch.manual_seed(1)
    weight = torch.randn(outputs, inputs)
    rows = torch.randn(5, inputs) * torch.tensor([[1e-6], [1.0], [1e3], [0.0], [1.0]])
    held, expected = EightBits(weight), rows @ weight.t()
    found = held.multiply(round_rows(rows))

    assert torch.equal(found, torch.cat([held.multiply(round_rows(row[None])) for row in rows]))
    assert ((found - expected).abs() <= 0.03 * rows.norm(dim=1, keepdim=True) * weight.norm(dim=1)).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sums_of_the_largest_values_do_not_overflow(sign: float) -> None:
    """AVX2 adds pairs of products in 16 bits, where a weight of 127 would saturate."""
    rows, weight = torch.ones(3, 4864), sign * torch.ones(40, 4864)

    torch.testing.assert_close(EightBits(weight).multiply(round_rows(rows)), rows @ weight.t())
