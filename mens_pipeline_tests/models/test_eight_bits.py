"""Products in eight bits equal those of the full weight, up to rounding."""

import pytest
import torch  # noqa: TID253 - loads in test processes that train

from mens_pipeline.models.eight_bits import EightBits, round_rows


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
