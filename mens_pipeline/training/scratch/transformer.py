"""VoxTransformer: a decoder of the usual kind, made from scratch. Only a process that trains or generates loads it.

Norm before each part, learnt positions, GELU, a head of its own. It is a model of Hugging Face like any other: its
Trainer, `generate` with a cache, safetensors and the Auto classes take it, and no code of a model folder is ever run.
"""
# ruff: noqa: TID253 - see above

from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from mens_pipeline.language.vox_tokenizer import EOS, PAD, VOCABULARY
from mens_pipeline.training.scratch.architecture import MODEL_TYPE, Shape


class VoxTransformerConfig(PreTrainedConfig):  # type: ignore[misc]
    """The shape of a VoxTransformer as its folder keeps it; the defaults are those of the full model."""

    model_type = MODEL_TYPE
    keys_to_ignore_at_inference = ("past_key_values",)

    vocab_size: int = len(VOCABULARY)
    hidden_size: int = 512
    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    dropout: float = 0.1
    max_position_embeddings: int = 512
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-5
    use_cache: bool = True
    pad_token_id: int | None = PAD
    eos_token_id: int | None = EOS
    bos_token_id: int | None = None
    tie_word_embeddings: bool = False


def config_of(shape: Shape) -> VoxTransformerConfig:
    """Return the configuration of a shape."""
    return VoxTransformerConfig(**shape.as_json())


class _Attention(nn.Module):  # type: ignore[misc]
    """Attention to what came before, of several heads."""

    is_causal = True

    def __init__(self, config: VoxTransformerConfig, layer: int) -> None:
        super().__init__()
        self.config = config
        self.layer = layer
        self.head_size = config.hidden_size // config.num_attention_heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(config.hidden_size, config.hidden_size) for _ in range(4)
        )

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None, cache: Any) -> torch.Tensor:
        """States of the same shape: rows, tokens, width."""
        shape = (*states.shape[:-1], -1, self.head_size)
        query, key, value = (part(states).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        if cache is not None:
            key, value = cache.update(key, value, self.layer)
        attend = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]  # noqa: SLF001 - where the library keeps it
        dropout = self.config.dropout if self.training else 0.0
        attended, _ = attend(self, query, key, value, mask, dropout=dropout, scaling=self.head_size**-0.5)
        return self.output(attended.reshape(states.shape))


class _Block(nn.Module):  # type: ignore[misc]
    """Attention and feed-forward part, each behind a norm and beside what it is given."""

    def __init__(self, config: VoxTransformerConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attention = _Attention(config, layer)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.hidden_size, config.intermediate_size),
            nn.GELU(),
            nn.Linear(config.intermediate_size, config.hidden_size),
            nn.Dropout(config.dropout),
        )

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None, cache: Any) -> torch.Tensor:
        """States of the same shape: rows, tokens, width."""
        states = states + self.attention(self.attention_norm(states), mask, cache)
        return states + self.feed_forward(self.feed_forward_norm(states))


class VoxTransformer(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """The model with its head."""

    config_class = VoxTransformerConfig
    _supports_sdpa = True
    _no_split_modules = ("_Block",)

    def __init__(self, config: VoxTransformerConfig) -> None:
        """Make a model with random weights.

        Raises:
            ValueError: The heads do not share the width evenly.
        """
        super().__init__(config)
        if config.hidden_size % config.num_attention_heads:
            advice = "Choose a hidden_size that is a multiple of num_attention_heads."
            raise ValueError(
                f"{config.num_attention_heads} heads cannot share a width of {config.hidden_size}. {advice}"
            )
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.blocks = nn.ModuleList([_Block(config, layer) for layer in range(config.num_hidden_layers)])
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Embed ids."""
        return self.tokens

    def get_output_embeddings(self) -> nn.Linear:
        """Return the head."""
        return self.head

    def forward(  # noqa: PLR0913, PLR0917 - what the library calls a model with
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Any = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,  # noqa: FBT001 - the library's own
        logits_to_keep: int = 0,
        num_items_in_batch: torch.Tensor | int | None = None,
        **_others: Any,
    ) -> CausalLMOutputWithPast:
        """Return logits of the next token at each place.

        Args:
            input_ids: Ids (rows, tokens).
            attention_mask: 1 for what counts, 0 for padding (rows, tokens so far); padding may stand on either side.
            position_ids: Places (rows, tokens); by default padding has none.
            past_key_values: What earlier calls left.
            labels: Ids to learn (rows, tokens), -100 for none; gives the loss.
            use_cache: Whether to keep keys and values for the next call; by default only when not training.
            logits_to_keep: Of how many last places; 0 for all.
            num_items_in_batch: What the summed loss is divided by; by default the labelled places.

        Raises:
            ValueError: There are more tokens than the model has positions.
        """
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        cache = DynamicCache(config=self.config) if use_cache and past_key_values is None else past_key_values
        seen = 0 if cache is None else cache.get_seq_length()
        self._refuse_too_long(seen + input_ids.shape[1])
        if position_ids is None:
            position_ids = self._places(input_ids, attention_mask, seen)
        states = self.tokens(input_ids) + self.positions(position_ids)
        mask = create_causal_mask(self.config, states, attention_mask, cache, position_ids)
        for block in self.blocks:
            states = block(states, mask, cache)
        logits = self.head(self.norm(states[:, -logits_to_keep:]))
        loss = None
        if labels is not None:
            loss = ForCausalLMLoss(logits, labels, self.config.vocab_size, num_items_in_batch)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)

    def _refuse_too_long(self, length: int) -> None:
        most = self.config.max_position_embeddings
        if length > most:
            raise ValueError(f"a row of {length} tokens, and the model has {most} positions. Give it shorter rows.")

    def _places(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None, seen: int) -> torch.Tensor:
        length = input_ids.shape[1]
        if attention_mask is None:
            return torch.arange(seen, seen + length, device=input_ids.device)[None]
        return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:]
