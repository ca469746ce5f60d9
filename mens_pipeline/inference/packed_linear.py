"""Matrix products with weights in the order that the CPU wants. For a generation process alone.

A few rows by a large matrix is what generation does all the time. Weights packed once for oneDNN made that about twice
as fast, at 4 to 64 rows, as the product that the library calls for weights as they lie in memory.
"""

import torch

_ROWS = 32
"""The number of rows that weights are packed for; others are served from the same packing."""


class PackedLinear(torch.nn.Module):  # type: ignore[misc]  # the library is untyped
    """A linear layer that can answer, and neither be trained nor saved."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        """Pack the weights of a layer in float32 on the CPU, which is left as it is."""
        super().__init__()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)  # noqa: SLF001 - its name
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Multiply rows of shape `(..., inputs)`."""
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")  # noqa: SLF001 - its name
        return product


def pack_linear(model: torch.nn.Module) -> None:
    """Replace every linear layer in float32 on the CPU; others, and where there is no oneDNN, stay."""
    if not torch.backends.mkldnn.is_available():
        return
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if (
                type(child) is torch.nn.Linear
                and child.weight.device.type == "cpu"
                and child.weight.dtype == torch.float32
            ):
                setattr(parent, name, PackedLinear(child))
