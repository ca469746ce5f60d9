"""Tiny models with random weights, one for each supported architecture: a table for all tests that run one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from mens_pipeline_tests.training.tiny_base import write_random_base

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SIZES: Final[dict[str, Any]] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    # Ten times the usual, so that a missing operation shows.
    "initializer_range": 0.2,
}
ARCHITECTURES: Final[dict[str, dict[str, Any]]] = {
    "llama": {},
    "llama-biased": {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4},
    "qwen2": {"num_attention_heads": 8, "num_key_value_heads": 1, "tie_word_embeddings": True},
    "qwen2-untied": {},
    "qwen3": {"head_dim": 128, "tie_word_embeddings": True},
    "qwen3_5_text": {
        "num_hidden_layers": 4,
        "head_dim": 64,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [3, 3, 2],
        },
        "tie_word_embeddings": True,
        "initializer_range": 0.05,
    },
    "gemma3_text": {"head_dim": 32, "sliding_window": 8, "tie_word_embeddings": True},
    "mistral": {"head_dim": 16, "sliding_window": None},
    "mistral-windowed": {"head_dim": 16, "sliding_window": 8},
}
"""Name -> fields of its configuration beyond `_SIZES`; a name begins with the type of the model.

Heads share keys 2 to 1, 8 to 1 and 1 to 1, and are as wide as their share of the width, or wider. Three layers of
linear attention come before one of full attention; value heads of the former are twice its key heads.
"""
_SPECIAL: Final = {"llama-biased", "qwen2", "qwen3_5_text", "gemma3_text"}
EACH: Final = [name if name in _SPECIAL else pytest.param(name, marks=pytest.mark.nightly) for name in ARCHITECTURES]
"""All of them; nightly ones have no operation of their own (biases, shared keys, linear attention, windows)."""


def write_architecture(folder: Path, name: str, tokenizer: "Tokenizer | None" = None, **more: Any) -> Path:
    """Write a model of the table as a Hugging Face folder; biases and norms are random too, instead of 0 and 1."""
    fields = {**_SIZES, **ARCHITECTURES[name], "model_type": name.partition("-")[0], **more}
    return write_random_base(folder, tokenizer, are_vectors_random=True, **fields)
