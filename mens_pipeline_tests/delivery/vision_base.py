"""A tiny base with vision, as Qwen3.5 is published: its text model is a part of the checkpoint."""

from pathlib import Path

from mens_pipeline_tests.training.tiny_base import TINY_HYBRID, write_tiny_base


def write_vision_base(folder: Path) -> Path:
    """Write four layers of linear and full attention after a vision tower of one block, with fixed random weights."""
    import torch
    from transformers import AutoTokenizer, Qwen3_5Config, Qwen3_5ForConditionalGeneration

    tokenizer = AutoTokenizer.from_pretrained(write_tiny_base(folder.with_name(f"{folder.name}-tokenizer")))
    text = {
        **TINY_HYBRID,
        "vocab_size": len(tokenizer),
        "tie_word_embeddings": True,
        "eos_token_id": tokenizer.eos_token_id,
    }
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": 64,
        "num_position_embeddings": 16,
    }
    torch.manual_seed(0)
    config = Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True)
    Qwen3_5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
