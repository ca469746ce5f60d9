"""A base model of random weights in the shape of a real one, to measure speed where the real one is not at hand.

`python -m mens_pipeline_tests.bench.random_base qwen3-4b FOLDER`, then name the folder with `--base` to the benches of
training and generation, and `--device cuda`. What such a model writes means nothing; it costs what the real one costs.
"""

import shutil
import sys
from pathlib import Path
from typing import Any, Final

from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL, find_base_model
from mens_pipeline.settings import load_settings

_QWEN3: Final = {"head_dim": 128, "tie_word_embeddings": True}
_SHAPES: Final[dict[str, dict[str, Any]]] = {
    "qwen2.5-coder-0.5b": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "qwen2.5-coder-1.5b": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "qwen3-0.6b": _QWEN3
    | {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
    },
    "qwen3-4b": _QWEN3
    | {
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "qwen3-8b": _QWEN3
    | {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "tie_word_embeddings": False,
    },
}
"""Name -> its configuration, as the published models have it; 151,936 tokens for all."""


def main(shape: str, folder: Path) -> None:
    """Write the model, with the tokenizer of the CPU default.

    Args:
        shape: A name of the table above.
        folder: Where; made again.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    if shape not in _SHAPES:
        sys.exit(f"{shape}: choose one of {', '.join(_SHAPES)}.")
    torch.manual_seed(0)
    with torch.device("cpu"):
        fields = {"vocab_size": 151_936, "dtype": "bfloat16", **_SHAPES[shape]}
        is_old = shape.startswith("qwen2")
        model = Qwen2ForCausalLM(Qwen2Config(**fields)) if is_old else Qwen3ForCausalLM(Qwen3Config(**fields))
        model = model.to(torch.bfloat16)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    base = find_base_model(DEFAULT_CPU_MODEL, None, load_settings().cache_root / "base_models")
    for pattern in ("tokenizer*.json", "special_tokens_map.json", "*.jinja"):
        for file in base.path.glob(pattern):
            shutil.copy2(file, folder / file.name)
    print(f"{sum(p.numel() for p in model.parameters()):,} values in {folder}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
