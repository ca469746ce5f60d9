"""Products with a frozen weight in eight bits, on a CPU. Only processes that train or generate import this."""

from typing import NamedTuple

import torch

_LARGEST = 127


class Rounded(NamedTuple):
    """Rows in int8, `(rows, width)`, and the scale of each, `(rows, 1)`."""

    values: torch.Tensor
    scales: torch.Tensor


class EightBits:
    """A weight in eight bits, of shape `(outputs, inputs)`, with one scale per row.

    Integer sums are exact, so the product of a row does not depend on the rest of the batch.

    Source:
        Vector-wise quantization of LLM.int8(), arXiv 2208.07339, without its outliers.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        values, scales = round_rows(weight)
        self._values, self._scales = values.t(), scales.t()

    def multiply(self, rows: Rounded) -> torch.Tensor:
        """Multiply rows of shape `(rows, inputs)`; the result is `(rows, outputs)`."""
        product: torch.Tensor = torch._int_mm(rows.values, self._values)  # noqa: SLF001 - it has no public name
        return product.to(rows.scales.dtype).mul_(rows.scales).mul_(self._scales)


def round_rows(rows: torch.Tensor) -> Rounded:
    """Round each row of a matrix to eight bits, scaled so that its largest absolute value is 127."""
    largest = torch.maximum(rows.amax(1, keepdim=True), -rows.amin(1, keepdim=True))
    scales = largest.div_(_LARGEST).clamp_min_(torch.finfo(rows.dtype).tiny)
    return Rounded((rows / scales).round_().to(torch.int8), scales)
