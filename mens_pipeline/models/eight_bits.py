"""Products with a frozen weight in eight bits, on a CPU. Only processes that train or generate import this."""

from typing import Any, Final, NamedTuple
from warnings import catch_warnings, simplefilter

import torch

_LARGEST: Final = 127
_LARGEST_WEIGHT: Final = 64
"""AVX2 adds two products in 16 bits, and 2 * 255 * 64 still fits."""
_CAN: Final = torch.cpu.get_capabilities()
_HAS_VNNI: Final = bool(_CAN.get("avx512_vnni") or _CAN.get("avx_vnni"))


class Rounded(NamedTuple):
    """Rows with largest absolute values of 127, `(rows, width)`, and the scale of each, `(rows, 1)`.

    The values are in int8 with VNNI; otherwise they are in float32, and the product rounds them.
    """

    values: torch.Tensor
    scales: torch.Tensor


class EightBits:
    """A weight in eight bits, of shape `(outputs, inputs)`, with one scale per row.

    Integer sums are exact, so the product of a row does not depend on the rest of the batch. Without VNNI, fbgemm
    multiplies, and the weight has 129 levels.

    Source:
        Vector-wise quantization of LLM.int8(), arXiv 2208.07339, without its outliers.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        largest = _LARGEST if _HAS_VNNI else _LARGEST_WEIGHT
        scales = _find_scales(weight, largest)
        values = (weight / scales).round_().to(torch.int8)
        self._values: Any = values.t() if _HAS_VNNI else _pack(values, scales)
        self._scales = scales.t()

    def multiply(self, rows: Rounded) -> torch.Tensor:
        """Multiply rows of shape `(rows, inputs)`; the result is `(rows, outputs)`."""
        product: torch.Tensor
        if _HAS_VNNI:
            product = torch._int_mm(rows.values, self._values)  # noqa: SLF001 - it has no public name
            return product.to(rows.scales.dtype).mul_(rows.scales).mul_(self._scales)
        multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        product = multiply(rows.values, 1.0, _LARGEST + 1, self._values)
        return product.mul_(rows.scales)


def round_rows(rows: torch.Tensor) -> Rounded:
    """Round each row of a matrix to eight bits, scaled so that its largest absolute value is 127."""
    scales = _find_scales(rows, _LARGEST)
    values = rows / scales
    return Rounded(values.round_().to(torch.int8) if _HAS_VNNI else values, scales)


def _pack(values: torch.Tensor, scales: torch.Tensor) -> Any:
    torch.backends.quantized.engine = "fbgemm"  # others do not multiply rows in float32
    with catch_warnings():
        # Later versions of torch drop these tensors, so the packed weight will need another name there.
        simplefilter("ignore", UserWarning)
        zeros = torch.zeros(len(values), dtype=torch.long)
        whole = torch._make_per_channel_quantized_tensor(values, scales[:, 0].double(), zeros, 0)  # noqa: SLF001 - no public name
    return torch.ops.quantized.linear_prepack(whole, None)


def _find_scales(rows: torch.Tensor, largest: int) -> torch.Tensor:
    found = torch.maximum(rows.amax(1, keepdim=True), -rows.amin(1, keepdim=True))
    return found.div_(largest).clamp_min_(torch.finfo(rows.dtype).tiny)
