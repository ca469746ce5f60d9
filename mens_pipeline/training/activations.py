"""What a layer keeps of a token while the gradients of a QLoRA step are computed, from its widths alone.

Measured on layers of real width with hooks on saved tensors: base in 16 bits, adapter in float32, under autocast.
"""

from collections.abc import Mapping
from typing import Any, Final

_LINEAR: Final = "linear_attention"
_FALLBACK: Final = 98
"""Bytes for a unit of width of the values of linear attention, as transformers computes it without kernels."""

_FUSED: Final = 28
"""The same with flash-linear-attention: inputs, outputs, convolution, norm, and a state for 64 tokens. Estimated."""


def layer_bytes(config: Mapping[str, Any], *, has_kernels: bool) -> int:
    """Bytes that the largest layer keeps for a token in 16 bits, beside its input.

    Args:
        config: The configuration of a model, or of the text model in it.
        has_kernels: Whether flash-linear-attention is installed.
    """
    text = config.get("text_config", config)
    kinds = set(text.get("layer_types") or ["full_attention"])
    return max(_linear(text, has_kernels=has_kernels) if kind == _LINEAR else _full(text) for kind in kinds)


def _network(text: Mapping[str, Any]) -> int:
    """Of the network behind the attention, and of what both read: each adapter keeps a copy of its input."""
    return 8 * _inner(text) + 18 * int(text["hidden_size"])


def _full(text: Mapping[str, Any]) -> int:
    heads = int(text["num_attention_heads"])
    width = int(text.get("head_dim") or text["hidden_size"] // heads)
    queries, keys = heads * width, int(text.get("num_key_value_heads") or heads) * width
    kind = str(text.get("model_type", ""))
    normed = 4 * (queries + keys) if kind.startswith("qwen3") else 0  # in float32
    gate = 4 * queries if kind.startswith(("qwen3_5", "qwen3_next")) else 0
    return _network(text) + 6 * queries + 4 * keys + normed + gate


def _linear(text: Mapping[str, Any], *, has_kernels: bool) -> int:
    heads = int(text["linear_num_value_heads"])
    width: int = heads * max(text["linear_value_head_dim"], text["linear_key_head_dim"])
    return _network(text) + 2 * int(text["hidden_size"]) + (_FUSED if has_kernels else _FALLBACK) * width


def _inner(text: Mapping[str, Any]) -> int:
    """Return the width of the network; of a mixture, that of the experts that a token sees."""
    inner = int(text.get("intermediate_size") or 4 * text["hidden_size"])
    experts = text.get("num_experts_per_tok")
    return inner if not experts else int(text.get("moe_intermediate_size") or inner) * int(experts)
