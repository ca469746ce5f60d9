"""Replacements for parts of a QLoRA model that are slow on a CPU. Only a training process imports this.

Except for products in eight bits, they compute the same in the same precision, in another order of operations.
`docs/experiments.md` lists the gain of each.
"""

from collections import Counter
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch.autograd.function import once_differentiable
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralAttention, MistralRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention, Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3RMSNorm

from mens_pipeline.models.eight_bits import EightBits, Rounded, round_rows
from mens_pipeline.training.preflight import SCORED_ON_CPU

if TYPE_CHECKING:
    from peft import PeftModel

_ADAPTER: Final = "default"
_ATTENTION: Final = "causal_products"
_NOTHING_SHARED: Final = (0, 0)
_CAUSAL_MODELS: Final = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Model types with plain causal attention, except for a window: no soft cap, no sinks."""
_ATTENTIONS: Final = (LlamaAttention, MistralAttention, Qwen2Attention, Qwen3Attention)
_NORMS: Final = (LlamaRMSNorm, MistralRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm)
_SMALLEST_SHARE: Final = 1e-5
"""Tokens with a smaller share at all positions are left out of the gradient of the head."""
_MOST_LEFT_OUT: Final = 0.01
"""Largest sum of shares to leave out at a position."""
_MOST_COLUMNS: Final = 0.25
"""Share of the vocabulary above which the whole vocabulary is multiplied."""


class _WholeWeight:
    """A frozen weight, (d_out, d_in), in the precision of the activations."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight, self.dtype = weight, weight.dtype

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Multiply inputs, (positions, d_in)."""
        return inputs @ self._weight.t()

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient of inputs for a gradient of outputs, (positions, d_out)."""
        return gradient @ self._weight


class _RoundedWeight:
    """A frozen weight, (d_out, d_in), in eight bits; its products also round the other factor."""

    _last: tuple[torch.Tensor, int, Rounded] | None = None
    """Last rounded inputs, and their version: queries, keys and values have the same inputs, as do gate and up."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._rows, self._columns, self.dtype = EightBits(weight), EightBits(weight.t().contiguous()), weight.dtype

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Multiply inputs, (positions, d_in)."""
        last = _RoundedWeight._last
        # Views of the same values are other objects; `last` keeps the memory of the values from being reused.
        if last is None or not inputs.is_set_to(last[0]) or inputs._version != last[1]:  # noqa: SLF001 - as autograd does
            last = _RoundedWeight._last = (inputs, inputs._version, round_rows(inputs))  # noqa: SLF001 - likewise
        return self._rows.multiply(last[2])

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient of inputs for a gradient of outputs, (positions, d_out)."""
        return self._columns.multiply(round_rows(gradient))


class _LoraProduct(torch.autograd.Function):  # type: ignore[misc]
    """`x W' + b + scale (x A') B'` with gradients for `x`, `A` and `B`, without float32 copies of activations."""

    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917 - the parts of a layer
        context: Any,
        inputs: torch.Tensor,
        weight: _WholeWeight | _RoundedWeight,
        bias: torch.Tensor | None,
        _down: torch.Tensor,
        _up: torch.Tensor,
        low_down: torch.Tensor,
        low_up: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        """Compute the layer: (..., d_in) to (..., d_out).

        A, (rank, d_in), and B, (d_out, rank), in float32, only receive gradients. `low_down` is A and `low_up` is
        `scale` times B, in the precision of the activations and of `bias`, (d_out).
        """
        flat = inputs.reshape(-1, inputs.shape[-1])
        inner = flat @ low_down.t()
        context.save_for_backward(flat, inner, low_down, low_up)
        context.scale, context.shape, context.weight = scale, inputs.shape, weight
        product = weight.forward(flat).addmm_(inner, low_up.t())
        if bias is not None:
            product += bias
        return product.view(*inputs.shape[:-1], product.shape[1])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        flat, inner, low_down, low_up = context.saved_tensors
        outer = gradient.reshape(-1, gradient.shape[-1])
        inner_gradient = outer @ low_up
        of_inputs = None
        if context.needs_input_grad[0]:
            of_inputs = context.weight.backward(outer).addmm_(inner_gradient, low_down).view(context.shape)
        of_down = (inner_gradient.t() @ flat).float()
        of_up = (outer.t() @ inner).float().mul_(context.scale)
        return of_inputs, None, None, of_down, of_up, None, None, None


class _TokenLosses(torch.autograd.Function):  # type: ignore[misc]
    """Cross entropy of a frozen head, with the gradient of its inputs computed in the forward pass.

    Only the logits of a few positions are in memory at once, and their gradient overwrites them, so no tensor of all
    positions and the whole vocabulary exists.
    """

    @staticmethod
    def forward(context: Any, hidden: torch.Tensor, head: torch.nn.Linear, wanted: torch.Tensor) -> torch.Tensor:
        losses = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        gradients = torch.empty_like(hidden) if context.needs_input_grad[0] else None
        for start in range(0, len(hidden), SCORED_ON_CPU):
            part = slice(start, start + SCORED_ON_CPU)
            logits, tokens = head(hidden[part]), wanted[part, None]
            # One pass over the vocabulary: the largest share, which is not 0, gives the logarithm of the sum.
            shares = logits.softmax(1, dtype=torch.float32)
            largest, where = logits.max(1, keepdim=True)
            distance = largest.float() - logits.gather(1, tokens).float()
            losses[part] = (distance - shares.gather(1, where).log())[:, 0]
            if gradients is not None:
                shares.scatter_add_(1, tokens, torch.full_like(tokens, -1, dtype=shares.dtype))
                gradients[part] = _multiply_head(shares, head.weight)
        if gradients is not None:
            context.save_for_backward(gradients)
        return losses

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradients,) = context.saved_tensors
        return gradients * gradient[:, None].to(gradients.dtype), None, None


def _multiply_head(shares: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply gradients of logits, (positions, tokens), by the weight of a head, (tokens, width).

    A trained model expects few tokens at a position: most columns are close to 0, and are left out.
    """
    columns = torch.maximum(shares.amax(0), -shares.amin(0)).gt(_SMALLEST_SHARE).nonzero()[:, 0]
    if len(columns) > _MOST_COLUMNS * len(weight):
        return shares.to(weight.dtype) @ weight
    kept = shares.index_select(1, columns)
    # A whole row sums to 0, so the part left out sums to minus the sum of the kept part.
    if float(kept.sum(1).abs().amax()) > _MOST_LEFT_OUT:
        return shares.to(weight.dtype) @ weight
    return kept.to(weight.dtype) @ weight.index_select(0, columns)


class _RootMeanSquareNorm(torch.autograd.Function):  # type: ignore[misc]
    """Inputs over their root mean square, in float32, times a frozen weight."""

    @staticmethod
    def forward(context: Any, inputs: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Compute the norm of `inputs`, (..., width)."""
        scale = inputs.float().square().mean(-1, keepdim=True).add_(epsilon).rsqrt_()
        context.save_for_backward(inputs, weight, scale)
        return (inputs * scale).to(inputs.dtype).mul_(weight)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, weight, scale = context.saved_tensors
        outer, normed = (gradient * weight).float(), inputs * scale
        along = (outer * normed).mean(-1, keepdim=True)
        return outer.addcmul_(normed, along, value=-1).mul_(scale).to(inputs.dtype), None, None


class _Rotation(torch.autograd.Function):  # type: ignore[misc]
    """Rotary position embedding without concatenated halves or tensors of zeros, forward and backward."""

    @staticmethod
    def forward(context: Any, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotate `states`, (rows, heads, length, width); `cos` and `sin` are (rows, 1, length, width)."""
        context.save_for_backward(cos, sin)
        return _rotate(states, cos, sin, 1)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        cos, sin = context.saved_tensors
        return _rotate(gradient, cos, sin, -1), None, None


def _rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, way: int) -> torch.Tensor:
    half = states.shape[-1] // 2  # both halves of `cos` and of `sin` are the same
    rotated, sin = states * cos, sin[..., :half]
    rotated[..., :half].addcmul_(states[..., half:], sin, value=-way)
    rotated[..., half:].addcmul_(states[..., :half], sin, value=way)
    return rotated


def token_losses(hidden: torch.Tensor, head: torch.nn.Linear, wanted: torch.Tensor) -> torch.Tensor:
    """Compute the negative log-likelihood of tokens under a frozen head.

    `hidden` are last hidden states, (positions, width); `wanted` are the tokens that follow, (positions), int64.
    Returns losses, (positions), float32.

    Source:
        Gradients in the forward pass as in Liger Kernel, arXiv 2410.10989.
    """
    losses: torch.Tensor = _TokenLosses.apply(hidden, head, wanted)
    return losses


class _FusedLayer:
    """The forward pass of one adapted four-bit layer, with a copy of its weight that products can read."""

    def __init__(self, layer: Any, dtype: torch.dtype, hold: type[_WholeWeight | _RoundedWeight]) -> None:
        from bitsandbytes.functional import dequantize_4bit  # noqa: PLC0415 - a base in bfloat16 does without

        quantized, bias = layer.base_layer.weight, layer.base_layer.bias
        self._weight = hold(dequantize_4bit(quantized.data, quantized.quant_state).to(dtype))
        self._bias = None if bias is None else bias.detach().to(dtype)
        self._down, self._up = layer.lora_A[_ADAPTER].weight, layer.lora_B[_ADAPTER].weight
        self._scale: float = layer.scaling[_ADAPTER]
        self._versions: tuple[int, int] | None = None
        self._low: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, layer: Any, inputs: torch.Tensor) -> torch.Tensor:
        if layer.disable_adapters or layer.merged:
            plain: torch.Tensor = type(layer).forward(layer, inputs)
            return plain
        low_down, low_up = self._in_low_precision()
        inputs = inputs.to(self._weight.dtype)
        product: torch.Tensor = _LoraProduct.apply(
            inputs, self._weight, self._bias, self._down, self._up, low_down, low_up, self._scale
        )
        return product

    def _in_low_precision(self) -> tuple[torch.Tensor, torch.Tensor]:
        versions = (self._down._version, self._up._version)  # noqa: SLF001 - how autograd itself notices a change
        if self._low is None or versions != self._versions:
            down, up = self._down.detach(), self._up.detach() * self._scale
            self._low = (down.to(self._weight.dtype), up.to(self._weight.dtype))
            self._versions = versions
        return self._low


def replace_slow_parts(model: "PeftModel", dtype: torch.dtype, *, in_eight_bits: bool = False) -> str:
    """Replace slow parts in place; return a line that counts the replaced parts and explains the others."""
    hold = _RoundedWeight if in_eight_bits else _WholeWeight
    layers, against = fuse_adapters(model, dtype, hold), use_causal_products(model)
    kept = ", ".join(f"{number} with {reason}" for reason, number in layers.items() if reason is not None)
    attention = "products" if against is None else f"transformers, for {against}"
    fused = f"{layers[None]} of {layers.total()} adapted layers fused{', in eight bits' if in_eight_bits else ''}"
    return f"{fused}{f', PEFT computes {kept}' if kept else ''}; attention by {attention}"


def fuse_adapters(
    model: "PeftModel", dtype: torch.dtype, hold: type[_WholeWeight | _RoundedWeight] = _WholeWeight
) -> Counter[str | None]:
    """Give every adapted four-bit layer a copy of its weight and one fused operation; count the layers.

    The copy holds the values that bitsandbytes restores at every call, in `d_in * d_out * itemsize` bytes, or those
    values in eight bits, rounded by rows and by columns, in `2 * d_in * d_out`. The model changes in place. Returns the
    number of fused layers for None, and of layers left to the libraries for each reason.
    """
    found: Counter[str | None] = Counter()
    for layer in [module for module in model.modules() if isinstance(module, BaseTunerLayer)]:
        reason = _reason_to_keep(layer)
        if reason is None:
            layer.forward = MethodType(_FusedLayer(layer, dtype, hold).forward, layer)
        found[reason] += 1
    return found


def _reason_to_keep(layer: Any) -> str | None:
    """Return why a layer is more than a `_LoraProduct`; None for one that can be fused."""
    base = layer.get_base_layer()
    if {type(layer).__name__, type(base).__name__} != {"Linear4bit"}:  # of PEFT and of bitsandbytes
        return type(base).__name__
    state = base.weight.quant_state
    found = {
        "several adapters": [*layer.lora_A] != [_ADAPTER] or layer.active_adapters != [_ADAPTER],
        "a variant of LoRA": bool(layer.lora_variant),
        "dropout": type(layer.lora_dropout[_ADAPTER]) is not torch.nn.Identity,
        "a bias that trains": layer.lora_bias[_ADAPTER] or (base.bias is not None and base.bias.requires_grad),
        "packed weights": state is None or getattr(state, "packing_format_for_cpu", False),
    }
    return next((reason for reason, is_there in found.items() if is_there), None)


def use_causal_products(model: "PeftModel") -> str | None:
    """Compute plain causal attention by batched products, and norms and rotations as one operation each.

    For short rows on a CPU, PyTorch's kernel takes several times as long as the three products. The model changes in
    place, unless the result is a reason against it.
    """
    config = model.get_base_model().config
    found = {
        str(config.model_type): config.model_type not in _CAUSAL_MODELS,
        "a sliding window": getattr(config, "sliding_window", None) is not None,
        "attention dropout": config.attention_dropout != 0,
    }
    reason = next((reason for reason, is_there in found.items() if is_there), None)
    if reason is not None:
        return reason
    ALL_ATTENTION_FUNCTIONS.register(_ATTENTION, _causal_attention)
    config._attn_implementation = _ATTENTION  # noqa: SLF001 - the setter reloads kernels from the Hub
    for module in model.modules():
        if isinstance(module, _NORMS):
            module.forward = partial(_normalize, module)
        elif isinstance(module, _ATTENTIONS):
            module.forward = partial(_attention_layer, module)
    return None


def _normalize(module: Any, inputs: torch.Tensor) -> torch.Tensor:
    normed: torch.Tensor = _RootMeanSquareNorm.apply(inputs, module.weight, module.variance_epsilon)
    return normed


def _attention_layer(
    module: Any,
    hidden_states: torch.Tensor,
    position_embeddings: tuple[torch.Tensor, torch.Tensor],
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Compute one of `_ATTENTIONS` without a cache; (rows, length, width) in and out."""
    shape = hidden_states.shape[:-1]
    query, key, value = (
        project(hidden_states).view(*shape, -1, module.head_dim)
        for project in (module.q_proj, module.k_proj, module.v_proj)
    )
    if isinstance(module, Qwen3Attention):
        query, key = module.q_norm(query), module.k_norm(key)
    query, key, value = (states.transpose(1, 2) for states in (query, key, value))
    angles = [each[:, None] for each in position_embeddings]
    query, key = (_Rotation.apply(states, *angles) for states in (query, key))
    seen, _ = _causal_attention(module, query, key, value, None, module.scaling, options.get("shared", _NOTHING_SHARED))
    return module.o_proj(seen.reshape(*shape, -1)), None


def is_causal(base: Any) -> bool:
    """Return whether `use_causal_products` changed a model, given without the wrapper of its adapter."""
    return bool(base.config._attn_implementation == _ATTENTION)  # noqa: SLF001 - where the library keeps it


def hidden_states(model: Any, ids: torch.Tensor, shared: int) -> torch.Tensor:
    """Compute the last hidden states of rows with a common prefix, which is computed only once.

    `ids` is (rows, length), int64, and all rows start with the same `shared` tokens, fewer than `length`. The model is
    the decoder of a model that `use_causal_products` changed. The result, (rows, length - shared, width), leaves out
    the common prefix.
    """
    rows, length = ids.shape
    places = torch.arange(shared, length, device=ids.device)
    states: torch.Tensor = model(
        input_ids=torch.cat([ids[0, :shared], ids[:, shared:].flatten()])[None],
        position_ids=torch.cat([torch.arange(shared, device=ids.device), places.repeat(rows)])[None],
        use_cache=False,
        shared=(shared, rows),
    ).last_hidden_state
    return states[0, shared:].view(rows, length - shared, -1)


def num_shared(ids: torch.Tensor) -> int:
    """Count the tokens of the common prefix of all rows of `ids`, (rows, length); 0 if it reaches the last token."""
    differs = (ids[:, :-1] != ids[0, :-1]).any(0)
    return int(differs.int().argmax()) if bool(differs.any()) else 0


def _causal_attention(
    _module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _attention_mask: None,
    scaling: float,
    shared: tuple[int, int] = _NOTHING_SHARED,
    **_options: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within rows padded on the right; a causal mask hides the padding from all other tokens.

    Shapes: query (rows, heads, length, width), key and value (rows, key heads, length, width); the result
    (rows, length, heads, width). With `shared`, the numbers of common tokens and of rows, the input is one row: first
    the common tokens, then the rest of each row.
    """
    query, (num_first, num_rows) = query * scaling, shared
    if not num_first:
        return _attend(query, key, value).transpose(1, 2).contiguous(), None
    # Split and squeeze, since the gradient of a slice is copied into a tensor of zeros.
    parts = [each.split([num_first, each.shape[2] - num_first], dim=2) for each in (query, key, value)]
    first = [before for before, _ in parts]
    rows = [
        own.squeeze(0).unflatten(1, (num_rows, -1)).transpose(0, 1) for _, own in parts
    ]  # (rows, heads, length, width)
    seen = [
        torch.cat([before.expand(num_rows, -1, -1, -1), own], dim=2)
        for before, own in zip(first[1:], rows[1:], strict=True)
    ]
    of_rows = _attend(rows[0], *seen).permute(0, 2, 1, 3).flatten(0, 1)
    return torch.cat([_attend(*first).squeeze(0).transpose(0, 1), of_rows])[None].contiguous(), None


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attend from each query to all keys up to its own; the last query belongs to the last key.

    Shapes are those of `_causal_attention`, with scaled queries; the result has the shape of the queries.
    """
    rows, heads, length, width = query.shape
    key_heads, num_keys = key.shape[1:3]
    # Stack the heads that share keys: one product serves them all, and no key is repeated.
    stacked = query.reshape(rows, key_heads, -1, width)
    later = torch.full((length, num_keys), torch.finfo(query.dtype).min, dtype=query.dtype)
    scores = (stacked @ key.transpose(2, 3)).view(rows, heads, length, num_keys)
    scores = scores.add_(later.triu(1 + num_keys - length))
    shares = torch.softmax(scores, dim=-1).view(rows, key_heads, -1, num_keys)
    return (shares @ value).view(rows, heads, length, width)
