"""A tiny model with layers of linear and of full attention, as Qwen3.5 has."""

from typing import Any

from mens_pipeline_tests.training.tiny_base import TINY_HYBRID


def hybrid_model() -> Any:
    """Four layers with the same random weights each time; tokens are bytes and two more."""
    import torch
    from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    torch.manual_seed(0)
    # With weights this large, the prompt decides the next token.
    config = Qwen3_5TextConfig(**TINY_HYBRID, vocab_size=258, initializer_range=0.2)
    return Qwen3_5ForCausalLM(config).eval()
