"""Write a base model with random weights in the shape of a real one, to measure speed without the real one.

`python -m mens_pipeline_tests.bench.random_base qwen3.5-4b FOLDER`, then pass `--base FOLDER --device cuda` to the
benches of training and generation. The output of such a model means nothing, but its cost is the same. A third argument
names a folder with the tokenizer, by default that of the CPU default; a fourth sets the number of layers.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mens_pipeline.models.base_wheels import SMOLLM2
from mens_pipeline.models.find_base import find_base_model
from mens_pipeline.settings import load_settings
from mens_pipeline_tests.training.tiny_base import TINY_HYBRID

SHAPES: Final[dict[str, dict[str, Any]]] = {
    "qwen2.5-coder-0.5b": {
        "model_type": "qwen2",
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    # Three layers of linear attention for each layer of full attention; other fields keep the defaults of transformers.
    "qwen3.5-4b": {
        "model_type": "qwen3_5_text",
        "hidden_size": 2560,
        "intermediate_size": 9216,
        "tie_word_embeddings": True,
    },
    "tiny-hybrid": {**TINY_HYBRID, "model_type": "qwen3_5_text", "vocab_size": 49_152, "tie_word_embeddings": True},
}
"""Name -> configuration of the published model; the last one is small, to try a bench on a CPU."""
_OF_A_TOKENIZER: Final = ("tokenizer*.json", "special_tokens_map.json", "*.jinja")


def main(shape: str, folder: Path, tokenizer: Path | None = None, layers: int | None = None) -> None:
    """Write the model, or its first layers, into a new folder with a tokenizer, by default from the CPU default."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    if shape not in SHAPES:
        sys.exit(f"{shape}: choose one of {', '.join(SHAPES)}.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in tokenizer_files(tokenizer):
        shutil.copy2(file, folder / file.name)
    known = AutoTokenizer.from_pretrained(folder)
    fields = SHAPES[shape] | {"eos_token_id": known.eos_token_id, "pad_token_id": known.pad_token_id}
    whole = AutoConfig.for_model(**fields).num_hidden_layers
    config = AutoConfig.for_model(**fields | {"num_hidden_layers": layers or whole})
    torch.manual_seed(0)
    # On a GPU, if there is one: billions of random values take minutes on a CPU.
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    num_values = sum(p.numel() for p in model.parameters())
    print(f"{num_values:,} values in {folder}, {config.num_hidden_layers} of {whole} layers")


def tokenizer_files(folder: Path | None = None) -> Iterator[Path]:
    """Yield the tokenizer files of a folder, or without one of the CPU default, found as a training finds it."""
    if folder is None:
        folder = find_base_model(SMOLLM2, None, load_settings().cache_root / "base_models").path
    for pattern in _OF_A_TOKENIZER:
        yield from folder.glob(pattern)


if __name__ == "__main__":
    _, shape, folder, *more = sys.argv
    main(shape, Path(folder), Path(more[0]) if more else None, int(more[1]) if more[1:] else None)
