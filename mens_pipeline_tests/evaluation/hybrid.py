"""A tiny model with layers of linear and of full attention, as Qwen3.5 has."""

from typing import Any


def hybrid_model() -> Any:
    """Four layers of random weights, the same each time; tokens are bytes and two more."""
    import torch
    from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        vocab_size=258,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        max_position_embeddings=512,
        initializer_range=0.2,  # with as much of it, what was read decides what comes next
    )
    return Qwen3_5ForCausalLM(config).eval()
