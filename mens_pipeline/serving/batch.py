"""Completions generated together: one forward pass of the model gives each its next token.

A prompt is read by itself, in pieces, and joins the others when it is read: a request neither waits for the answers
before it, nor holds them up while it is read.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

PIECE: Final = 512
"""Tokens of a prompt that are read at once; longer ones let others go on in between."""


class Prompt:
    """A prompt that is read piece by piece."""

    def __init__(self, model: Any, ids: Sequence[int], piece: int = PIECE) -> None:
        """Begin to read."""
        self._piece = piece
        self._model = model
        self._ids = ids
        self._num_read = 0
        self.cache = new_cache(model)

    def __len__(self) -> int:
        """Return its number of tokens."""
        return len(self._ids)

    def read(self) -> "torch.Tensor | None":
        """Read the next piece; once all is read, return the scores of the first token of the answer."""
        import torch

        begin, end = self._num_read, min(self._num_read + self._piece, len(self._ids))
        device = self._model.device
        output = self._model(
            input_ids=torch.tensor([self._ids[begin:end]], device=device),
            attention_mask=torch.ones(1, end, dtype=torch.long, device=device),
            position_ids=torch.arange(begin, end, device=device)[None],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._num_read = end
        scores: torch.Tensor = output.logits[0, -1].float()
        return scores if end == len(self._ids) else None


class Batch:
    """The answers that are being written, each at its place."""

    def __init__(self, model: Any) -> None:
        """Begin without any."""
        self._model = model
        self._cache: Any = None
        self._mask: Any = None

    def join(self, prompt: Prompt) -> None:
        """Let the answer to a prompt that is read take the place behind the last one."""
        import torch

        mask = torch.ones(1, len(prompt), dtype=torch.long, device=self._model.device)
        if self._cache is None:
            self._cache, self._mask = prompt.cache, mask
            return
        width = max(self._mask.shape[1], mask.shape[1])
        self._mask = torch.cat([_pad(self._mask, width), _pad(mask, width)])
        for ours, theirs in zip(self._cache.layers, prompt.cache.layers, strict=True):
            _join_layers(ours, theirs, width)

    def step(self, tokens: Sequence[int]) -> "torch.Tensor":
        """Read the last token of each answer, in the order of their places; return scores of the next, a row each."""
        import torch

        self._mask = torch.nn.functional.pad(self._mask, (0, 1), value=1)
        output = self._model(
            input_ids=torch.tensor(tokens, device=self._model.device)[:, None],
            attention_mask=self._mask,
            position_ids=self._mask.sum(-1, keepdim=True) - 1,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        scores: torch.Tensor = output.logits[:, -1].float()
        return scores

    def keep(self, places: Sequence[int]) -> None:
        """Drop the rows at all other places; those that stay move up."""
        import torch

        if not places:
            self._cache = self._mask = None
            return
        kept = torch.tensor(places, dtype=torch.long, device=self._model.device)
        self._cache.reorder_cache(kept)
        # Columns that held the longest ones alone are of no use any more.
        first = int(self._mask[kept].any(0).int().argmax())
        self._mask = self._mask[kept, first:]
        for layer in self._cache.layers:
            if hasattr(layer, "keys"):
                layer.keys, layer.values = layer.keys[:, :, first:], layer.values[:, :, first:]


def new_cache(model: Any) -> Any:
    """Return an empty KV cache for a model."""
    from transformers import DynamicCache

    return DynamicCache(config=model.config.get_text_config())


def can_join(cache: Any) -> bool:
    """Return whether answers of different lengths can be written together: full or linear attention, no windows."""
    from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

    return all(type(layer) in {DynamicLayer, LinearAttentionLayer} for layer in cache.layers)


def _join_layers(ours: Any, theirs: Any, width: int) -> None:
    import torch

    if hasattr(ours, "keys"):
        for name in ("keys", "values"):
            pair = [_pad(getattr(layer, name), width, dim=-2) for layer in (ours, theirs)]
            setattr(ours, name, torch.cat(pair))
        return
    for states, others in ((ours.conv_states, theirs.conv_states), (ours.recurrent_states, theirs.recurrent_states)):
        for number, state in states.items():
            if state is not None:
                states[number] = torch.cat([state, others[number]])


def _pad(values: "torch.Tensor", width: int, dim: int = -1) -> "torch.Tensor":
    """Zeros in front of values, so that they are as wide as others."""
    import torch

    missing = width - values.shape[dim]
    padding = (missing, 0) if dim == -1 else (0, 0, missing, 0)
    return torch.nn.functional.pad(values, padding)
