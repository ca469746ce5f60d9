"""llama.cpp as the engine of a server: it computes how likely each next token is, and nothing else.

Sampling, the constraint, checks, limits and formats are those of our own engine, so that all that is served is served
by either. The weights are those that were evaluated, rounded to 8 bits: pieces differ where two tokens are about
equally likely. What a prompt shares with one before it is not read again.
"""

import secrets
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.delivery.gguf_model import refuse_unsupported
from mens_pipeline.errors import ConfigurationError, how_to_install
from mens_pipeline.inference.engine import Slot, take_tokens
from mens_pipeline.models.base import configuration_of
from mens_pipeline.serving.queue import Loaded
from mens_pipeline.serving.served_model import ServedModel
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.store import key_of

if TYPE_CHECKING:
    import torch

NAME: Final = "llama.cpp"
_PACKAGES: Final = ("xllamacpp", "gguf")
_WRITER: Final = "mens_pipeline.delivery.gguf_file"
_TYPE: Final = "q8_0"
_FOLDER: Final = "gguf"
_FILE, _ENDS = "model.gguf", "generation_config.json"
"""In the cache, by the digest of what it was written from: the model, and the tokens that end a turn."""
_NUM_LIKELIEST: Final = 64
"""Tokens that it tells of at each position."""
_BELOW: Final = 60.0
"""Log-probability that all other tokens lie below the least likely of these: too low to be drawn, and finite."""
_FORCED: Final = 1e3
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
    import torch
    import xllamacpp  # noqa: PLC0415 - an extra of its own
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(served.evaluated.base_path, trust_remote_code=False)
    if not folder.is_dir():
        _write(served, tokenizer, folder)
    params = xllamacpp.CommonParams()
    params.model.path = str(folder / _FILE)
    # It also listens, where nobody is to ask; from within this process it takes no key.
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [secrets.token_hex()]
    params.n_parallel, params.n_ctx, params.kv_unified = max_concurrent, served.max_context, True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = torch.get_num_threads()
    params.warmup, params.verbosity = False, -1
    stop = GenerationConfig.from_pretrained(folder).eos_token_id
    vocabulary = configuration_of(served.evaluated.base_path)["vocab_size"]
    model = LlamaCpp(xllamacpp.Server(params), vocabulary, stop[0])
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


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """A model in llama.cpp.

    Attributes:
        server: Of xllamacpp, asked from within this process.
        vocabulary: Number of its tokens.
        end: One that ends a turn.
    """

    server: Any
    vocabulary: int
    end: int

    def next_scores(self, tokens: Sequence[int]) -> "torch.Tensor":
        """Return log-probabilities of the token behind others, of shape `(vocabulary,)`; exact for the likeliest ones.

        Raises:
            RuntimeError: It could not go on.
        """
        import torch

        # A token that ends the text is forced: of half a character it would tell nothing. What it tells of each token
        # is from before that.
        body = {"prompt": [*tokens], "max_tokens": 1, "logprobs": _NUM_LIKELIEST, "logit_bias": [[self.end, _FORCED]]}
        reply = self.server.handle_completions(body)
        if "error" in reply:
            raise RuntimeError(f"{NAME}: {reply['error'].get('message')}")
        (position,) = reply["choices"][0]["logprobs"]["content"]
        found = {each["id"]: each["logprob"] for each in position["top_logprobs"]}
        scores = torch.full((self.vocabulary,), min(found.values()) - _BELOW)
        scores[list(found)] = torch.tensor(list(found.values()))
        return scores


class LlamaCppEngine:
    """Writes completions with llama.cpp for slots that come and go, a token of each in turn."""

    def __init__(self, model: LlamaCpp, stop: frozenset[int], num_slots: int) -> None:
        """Begin with all slots free; tokens of `stop` end a turn."""
        self.num_slots = num_slots
        self._model = model
        self._stop = stop
        self._slots: list[Any] = []

    def admit(self, slot: Slot) -> None:
        """Let a completion take a free slot."""
        self._slots.append(slot)

    def step(self) -> list[Any]:
        """Write a token of each completion, and return those that have ended."""
        for slot in self._slots:
            slot.end_unwanted(time.monotonic())
            if slot.end is None:
                scores = self._model.next_scores((*slot.prompt, *slot.tokens))
                take_tokens([slot], scores[None], self._stop)
        ended = [slot for slot in self._slots if slot.end is not None]
        self._slots = [slot for slot in self._slots if slot.end is None]
        return ended

    def clear(self) -> None:
        """Drop all completions."""
        self._slots.clear()


class LoadedByLlamaCpp(Loaded):
    """A model that llama.cpp computes."""

    def new_engine(self, num_slots: int) -> LlamaCppEngine:
        """Return an engine that writes so many completions at once."""
        return LlamaCppEngine(self.model, self.stop, num_slots)
