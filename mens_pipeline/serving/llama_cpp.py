"""llama.cpp as the engine of a server: `inference/llama_cpp.py` computes how likely each next token is, and no more.

Sampling, the constraint, checks, limits and formats are those of our own engine, so that all that is served is served
by either. The weights are those that were evaluated, rounded to 8 bits: pieces differ where two tokens are about
equally likely. What a prompt shares with one before it is not read again.
"""

import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from mens_pipeline.delivery.gguf_model import refuse_unsupported
from mens_pipeline.errors import ConfigurationError, how_to_install
from mens_pipeline.inference.llama_cpp import NAME, LlamaCppEngine, open_gguf
from mens_pipeline.models.base import configuration_of
from mens_pipeline.serving.queue import Loaded
from mens_pipeline.serving.served_model import ServedModel
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.store import key_of

_PACKAGES: Final = ("xllamacpp", "gguf")
_WRITER: Final = "mens_pipeline.delivery.gguf_file"
_TYPE: Final = "q8_0"
_FOLDER: Final = "gguf"
_FILE, _ENDS = "model.gguf", "generation_config.json"
"""In the cache, by the digest of what it was written from: the model, and the tokens that end a turn."""
_MOST_CONTEXT: Final = 16_384
"""Tokens that room is reserved for, whatever a model can hold."""


def with_llama_cpp(served: ServedModel, cache: Path) -> ServedModel:
    """Return a model as llama.cpp is to compute it; its file lies in the cache, or is written there when it is loaded.

    Raises:
        ConfigurationError: llama.cpp is not installed, or the model is to be computed by a GPU.
        RefusedError: The model cannot be written as GGUF.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"--engine {NAME}: {', '.join(missing)}: not installed. {how_to_install('llama')}")
    if served.evaluated.device != "cpu":
        raise ConfigurationError(f"--engine {NAME}: computes on the CPU here. Add --device cpu, or leave --engine out.")
    refuse_unsupported(served.evaluated.base_path)
    parts = {"model": served.sha256, "type": _TYPE, "writer": code_version(_WRITER)}
    context = min(served.max_context, _MOST_CONTEXT)
    return replace(served, gguf=cache / _FOLDER / key_of(parts), max_context=context)


def load_llama_cpp(served: ServedModel, folder: Path, max_concurrent: int) -> "LoadedByLlamaCpp":
    """Load a model into llama.cpp, from its file in a folder, which is written where it is not there."""
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(served.evaluated.base_path, trust_remote_code=False)
    if not folder.is_dir():
        _write(served, tokenizer, folder)
    stop = GenerationConfig.from_pretrained(folder).eos_token_id
    config = configuration_of(served.evaluated.base_path)
    vocabulary = config.get("text_config", config)["vocab_size"]
    model = open_gguf(folder / _FILE, vocabulary, stop[0], num_slots=max_concurrent, context=served.max_context)
    # It is warm then; and one that is ended before it has begun would never end.
    model.next_scores(stop)
    return LoadedByLlamaCpp(model, frozenset(stop), tokenizer)


def _write(served: ServedModel, tokenizer: Any, folder: Path) -> None:
    """Write a model as GGUF, with the tokens that end a turn beside it; whole or not at all."""
    from mens_pipeline.delivery.gguf_file import write_gguf  # noqa: PLC0415 - loads what writes it
    from mens_pipeline.inference.generate import save_served  # noqa: PLC0415 - loads torch

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        merged, draft = Path(place) / "merged", Path(place) / "draft"
        save_served(served.evaluated, tokenizer, merged)
        draft.mkdir()
        write_gguf(merged, draft / _FILE, _TYPE, served.name, None)
        (merged / _ENDS).rename(draft / _ENDS)
        draft.rename(folder)


class LoadedByLlamaCpp(Loaded):
    """A model that llama.cpp computes."""

    def new_engine(self, num_slots: int) -> LlamaCppEngine:
        """Return an engine that writes so many completions at once."""
        return LlamaCppEngine(self.model, self.stop, num_slots)
