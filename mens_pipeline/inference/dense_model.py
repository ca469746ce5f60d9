"""Faster forward passes on a CPU, for inference only.

In transformers, a step that writes one token spends about half of its time on products with weights, and the rest on a
thousand small operators. Here, queries, keys and values are one product, as are gate and up; the other operators run on
the same numbers in the same order. With packed weights, the logits equal those of transformers with packed weights bit
for bit.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch.nn import functional

from mens_pipeline.errors import RefusedError
from mens_pipeline.models.eight_bits import EightBits, round_rows

_ROWS: Final = 32
"""Number of rows to optimize the packing of weights for; other numbers also work."""
_DIMENSIONS: Final = 4  # of a mask with a row for each token
_ARCHITECTURES: Final = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
_PLAIN: Final = {"rope_type": "default", "hidden_act": "silu", "sliding_window": None}
"""Configuration values that `DenseModel` requires."""


class PackedLinear(torch.nn.Module):  # type: ignore[misc]  # the library is untyped
    """A linear layer for inference: it can be neither trained nor saved."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)  # noqa: SLF001 - its name
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Multiply rows of shape `(..., inputs)`."""
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")  # noqa: SLF001 - its name
        return product


class EightLinear(torch.nn.Module):  # type: ignore[misc]  # the library is untyped
    """A linear layer that multiplies in eight bits; it can be neither trained nor saved."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self._weight = EightBits(linear.weight.detach())
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Multiply rows of shape `(..., inputs)`."""
        product = self._weight.multiply(round_rows(rows.reshape(-1, rows.shape[-1])))
        if self._bias is not None:
            product += self._bias
        return product.view(*rows.shape[:-1], product.shape[1])


_Linear = Callable[[torch.nn.Linear], Callable[[torch.Tensor], torch.Tensor]]
_SAMPLED: Final = 8  # tokens whose logits `speed_up` compares with those of the library
_MOST_ROUNDED: Final[dict[Any, float]] = {PackedLinear: 1e-3, EightLinear: 0.5}
"""Kind of linear layer -> allowed distance from the logits of transformers, relative to their norm.

With Qwen2.5-Coder-0.5B, rounding gives 0.00001 and 0.2; a wrong computation gives about 1.
"""


class Output(NamedTuple):
    """Output of a forward pass: logits of shape `(rows, positions, tokens)`."""

    logits: torch.Tensor


class DenseModel:
    """A model of the Llama family that can only be called, with the signature of transformers.

    It supports biases, heads that share keys, and norms of queries and keys (Qwen3), but no sliding window.
    """

    def __init__(self, model: Any) -> None:
        """Consume a float32 CPU model: its weights move here, and it must not be used afterwards."""
        self.config, self.generation_config, self.device = model.config, model.generation_config, model.device
        self._embed, self._rotary = model.model.embed_tokens.weight.detach(), model.model.rotary_emb
        self._norm, self._epsilon = model.model.norm.weight.detach(), model.config.rms_norm_eps
        self._head: Any = model.lm_head
        layers, model.model.layers = list(model.model.layers), None
        layers.reverse()
        self._layers: list[_Layer] = []
        while layers:
            self._layers.append(_Layer(layers.pop(), len(self._layers), self._epsilon))

    def convert(self, linear: _Linear) -> None:
        """Replace each plain linear layer by the result of `linear`."""
        self._head = linear(self._head)
        for layer in self._layers:
            layer.convert(linear)

    def __call__(  # noqa: PLR0913 - as the library has it
        self,
        *,
        input_ids: torch.Tensor,
        past_key_values: Any,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        use_cache: bool = True,  # noqa: ARG002 - as the library has it
        logits_to_keep: int = 0,
    ) -> Output:
        """Compute the logits of tokens that continue a cache, and add their keys and values to it.

        `input_ids` and `position_ids` have shape `(rows, positions)`; by default, positions continue after the cache.
        `attention_mask` also covers the positions of the cache; 0 masks a position. With four dimensions, it has a row
        for each token, as in transformers. Logits are computed for the last `logits_to_keep` positions; 0: all.
        """
        num_past = past_key_values.get_seq_length()
        if position_ids is None:
            position_ids = torch.arange(num_past, num_past + input_ids.shape[1])[None]
        hidden = functional.embedding(input_ids, self._embed)
        cosines, turned = (values[:, :, None] for values in self._find_turn(hidden, position_ids))
        mask = _mask(attention_mask, input_ids.shape[1], num_past)
        for layer in self._layers:
            hidden = layer.forward(hidden, (cosines, turned), mask, past_key_values)
        last = hidden[:, -logits_to_keep:]
        return Output(self._head(functional.rms_norm(last, self._norm.shape, self._norm, self._epsilon)))

    def move_keys(self, keys: torch.Tensor, num_positions: int) -> torch.Tensor:
        """Turn keys of shape `(rows, heads, positions, size of a head)` to later positions, or to earlier ones."""
        cosines, turned = self._find_turn(keys, torch.tensor([[num_positions]]))
        return keys * cosines + keys.roll(keys.shape[-1] // 2, -1) * turned

    def _find_turn(self, states: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cosines, sines = self._rotary(states, positions)
        # Half of each head rotates by minus the sine: negate the sine once instead of the halves in each layer.
        half = sines.shape[-1] // 2
        return cosines, torch.cat((-sines[..., :half], sines[..., half:]), dim=-1)


class _Layer:
    def __init__(self, layer: Any, number: int, epsilon: float) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._number, self._epsilon, self._size = number, epsilon, attention.head_dim
        self._num_shared = attention.num_key_value_groups
        self._num_keys = attention.k_proj.out_features // self._size
        self._num_queries = self._num_keys * self._num_shared
        self._norms: torch.Tensor | None = None
        if isinstance(getattr(attention, "q_norm", None), torch.nn.Module):
            norms, numbers = (attention.q_norm, attention.k_norm), (self._num_queries, self._num_keys)
            rows = [norm.weight.detach().expand(number, -1) for norm, number in zip(norms, numbers, strict=True)]
            self._norms = torch.cat(rows)
        self._before = layer.input_layernorm.weight.detach()
        self._between = layer.post_attention_layernorm.weight.detach()
        self._project: Any = _join(attention.q_proj, attention.k_proj, attention.v_proj)
        self._out = attention.o_proj
        self._gate_up: Any = _join(mlp.gate_proj, mlp.up_proj)
        self._down = mlp.down_proj
        self._num_inner = mlp.gate_proj.out_features

    def convert(self, linear: _Linear) -> None:
        self._project, self._out = linear(self._project), linear(self._out)
        self._gate_up, self._down = linear(self._gate_up), linear(self._down)

    def forward(
        self, hidden: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor | None, cache: Any
    ) -> torch.Tensor:
        rows, positions, size = hidden.shape
        states = self._project(functional.rms_norm(hidden, (size,), self._before, self._epsilon))
        states = states.view(rows, positions, -1, self._size)
        num_turned = self._num_queries + self._num_keys
        cosines, sines = turn
        both = states[:, :, :num_turned]
        if self._norms is not None:
            both = functional.rms_norm(both, (self._size,), None, self._epsilon) * self._norms
        turned = (both * cosines).add_(both.roll(self._size // 2, -1).mul_(sines)).transpose(1, 2)
        values = states[:, :, num_turned:].transpose(1, 2)
        keys, values = cache.update(turned[:, self._num_queries :], values, self._number)
        seen = self._attend(turned[:, : self._num_queries], keys, values, mask)
        hidden = hidden + self._out(seen.reshape(rows, positions, -1))
        inner = self._gate_up(functional.rms_norm(hidden, (size,), self._between, self._epsilon))
        gate = functional.silu(inner[..., : self._num_inner])
        return hidden.add_(self._down(gate.mul_(inner[..., self._num_inner :])))

    def _attend(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        rows, _, positions, size = queries.shape
        attend = functional.scaled_dot_product_attention
        if mask is None:
            seen = attend(queries, keys, values, is_causal=positions > 1, enable_gqa=True)
        elif positions == 1:
            # Pass heads that share keys as positions, so that no key is copied.
            seen = attend(queries.reshape(rows, self._num_keys, -1, size), keys, values, attn_mask=mask)
            seen = seen.reshape(rows, self._num_queries, 1, size)
        else:
            keys, values = (states.repeat_interleave(self._num_shared, 1) for states in (keys, values))
            seen = attend(queries, keys, values, attn_mask=mask)
        return seen.transpose(1, 2)


def _mask(attention_mask: torch.Tensor | None, num_new: int, num_past: int) -> torch.Tensor | None:
    """Return the visible positions, of shape `(rows or 1, 1, new positions, all)`; None: plain causal attention."""
    if attention_mask is not None and attention_mask.ndim == _DIMENSIONS:
        return attention_mask
    shown = None if attention_mask is None or bool(attention_mask.all()) else attention_mask.bool()[:, None, None]
    if num_new == 1 or (shown is None and num_past == 0):
        return shown
    before = torch.ones(num_new, num_past + num_new, dtype=torch.bool).tril(num_past)[None, None]
    return before if shown is None else before & shown


def _join(*parts: torch.nn.Linear) -> torch.nn.Linear:
    together = torch.nn.Linear(1, 1, bias=False)
    together.weight = torch.nn.Parameter(torch.cat([part.weight.detach() for part in parts]), requires_grad=False)
    biases = [part.bias.detach() for part in parts if part.bias is not None]
    if biases:
        together.bias = torch.nn.Parameter(torch.cat(biases), requires_grad=False)
    return together


def speed_up(model: Any, *, in_eight_bits: bool) -> Any:
    """Return a faster model with the same completions, if there is one; consume the given model.

    In float32 on a CPU, `_ARCHITECTURES` become a `DenseModel`, and other models get faster linear layers. Models on
    other devices, or on a CPU without packed products, are returned unchanged. `RefusedError` if the faster model
    computes different logits.
    """
    linear = EightLinear if in_eight_bits else PackedLinear
    if model.device.type != "cpu" or (linear is PackedLinear and not torch.backends.mkldnn.is_available()):
        return model
    name, expected = model.name_or_path, _sample_logits(model, [_SAMPLED])
    if _is_dense(model):
        model = DenseModel(model)
        # Compare before rounding, since the limits for rounded weights would hide a small mistake.
        _refuse_difference(name, _sample_logits(model, [_SAMPLED - 1, 1]), expected, _MOST_ROUNDED[PackedLinear])
        model.convert(linear)
    else:
        replace_linear(model, linear)
    _refuse_difference(name, _sample_logits(model, [_SAMPLED - 1, 1]), expected, _MOST_ROUNDED[linear])
    return model


def _sample_logits(model: Any, lengths: list[int]) -> torch.Tensor:
    from transformers import DynamicCache  # noqa: PLC0415 - slow to import

    ids = torch.linspace(0, model.config.get_text_config().vocab_size - 1, _SAMPLED, dtype=torch.long)[None]
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        parts = [model(input_ids=part, past_key_values=cache, use_cache=True).logits for part in ids.split(lengths, 1)]
    logits = torch.cat(parts, 1)
    return logits - logits.mean(-1, keepdim=True)


def _refuse_difference(name: str, found: torch.Tensor, expected: torch.Tensor, limit: float) -> None:
    share = float((found - expected).norm() / expected.norm())
    if not share <= limit:
        off = f"its fast forward pass gives logits that are {share:.2%} off those of transformers"
        raise RefusedError(f"{name}: {off}, at most {limit:.2%} is expected. Report this with its config.json.")


def replace_linear(model: torch.nn.Module, linear: _Linear) -> None:
    """Replace every float32 linear layer on the CPU."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            is_linear = type(child) is torch.nn.Linear
            if is_linear and child.weight.device.type == "cpu" and child.weight.dtype == torch.float32:
                setattr(parent, name, linear(child))


def _is_dense(model: Any) -> bool:
    if type(model).__name__ not in _ARCHITECTURES:
        return False
    found = {name: getattr(model.config, name, None) for name in _PLAIN} | {
        "rope_type": model.config.rope_parameters["rope_type"]
    }
    is_plain = all(type(module) is torch.nn.Linear for module in model.modules() if isinstance(module, torch.nn.Linear))
    weights = {(weight.device.type, weight.dtype) for weight in model.parameters()}
    return is_plain and found == _PLAIN and weights == {("cpu", torch.float32)}
