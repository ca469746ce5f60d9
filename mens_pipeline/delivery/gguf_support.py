"""Models that can be written as GGUF: the architecture of SmolLM2, and tokenizers whose rules llama.cpp knows.

Whatever else would give a file that loads and writes nonsense, so it is refused by name before anything is written.
"""

import json
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError

ARCHITECTURE: Final = "LlamaForCausalLM"
_ADVICE: Final = (
    "Run `mens merge -o DIR` without --gguf, and convert DIR with llama.cpp's own convert_hf_to_gguf.py; or serve "
    "DIR as it is: `mens serve --model DIR`, `vllm serve DIR`."
)
_BYTE_LEVEL: Final = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_DIGITS: Final = {"type": "Digits", "individual_digits": True}
_SPLITTERS: Final[tuple[tuple[str, tuple[dict[str, Any], ...]], ...]] = (
    ("gpt-2", (_BYTE_LEVEL,)),
    ("smollm", (_DIGITS, _BYTE_LEVEL)),
)
"""What llama.cpp calls a way to split text before merging -> what tokenizer.json says of it.

The same model comes with either: from the Hub with digits one by one, from the package of the CPU default without. It
was trained with what its tokenizer.json says, and must be served with that.
"""


def refuse_unsupported(merged: Path) -> None:
    """Check that a model can be written as GGUF.

    Raises:
        RefusedError: Another architecture, or a part of it that is not written; the message names it.
    """
    config = json.loads((merged / "config.json").read_text(encoding="utf-8"))
    found = next(iter(config.get("architectures") or []), "none named")
    if found != ARCHITECTURE:
        raise RefusedError(f"{merged}: {found} is not written as GGUF, only {ARCHITECTURE}. {_ADVICE}")
    rope = (config.get("rope_parameters") or {}).get("rope_type", "default")
    unwritten = [
        *([f"rope_type {rope}"] if rope != "default" else []),
        *(name for name in ("attention_bias", "mlp_bias") if config.get(name)),
        *([f"hidden_act {config['hidden_act']}"] if config.get("hidden_act") != "silu" else []),
    ]
    if unwritten:
        raise RefusedError(f"{merged / 'config.json'}: {', '.join(unwritten)} is not written as GGUF. {_ADVICE}")
    splitter_of(merged)


def splitter_of(merged: Path) -> str:
    """Return llama.cpp's name for the way in which a tokenizer splits text before merging.

    Raises:
        RefusedError: It knows no such way, or the tokenizer is not made of byte pairs.
    """
    path = merged / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    kind = tokenizer["model"].get("type")
    if kind != "BPE" or tokenizer["model"].get("byte_fallback") or tokenizer["normalizer"] is not None:
        detail = f"a tokenizer of kind {kind}, with its normalizer or byte fallback, is not written as GGUF"
        raise RefusedError(f"{path}: {detail}. {_ADVICE}")
    steps = tokenizer["pre_tokenizer"] or {}
    found = steps.get("pretokenizers", [steps])
    for name, wanted in _SPLITTERS:
        if len(found) == len(wanted) and all(map(_says, found, wanted)):
            return name
    kinds = ", ".join(str(step.get("type")) for step in found)
    raise RefusedError(f"{path}: splits text by {kinds}, which has no name in GGUF here. {_ADVICE}")


def _says(step: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(step.get(key) == value for key, value in wanted.items())
