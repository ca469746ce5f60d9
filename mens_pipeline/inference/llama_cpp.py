"""llama.cpp: it computes how likely each next token of a GGUF file is, and nothing else.

What a prompt shares with one before it is not read again. For a process that generates alone.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.inference.engine import Slot, take_tokens

if TYPE_CHECKING:
    import torch

NAME: Final = "llama.cpp"
_NUM_LIKELIEST: Final = 64
"""Tokens that it tells of at each position."""
_BELOW: Final = 60.0
"""Log-probability that all other tokens lie below the least likely of these: too low to be drawn, and finite."""
_FORCED: Final = 1e3


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


def open_gguf(file: Path, vocabulary: int, end: int, *, num_slots: int, context: int) -> LlamaCpp:
    """Load a GGUF file.

    Args:
        file: The model.
        vocabulary: Number of its tokens.
        end: One that ends a turn.
        num_slots: Completions at once.
        context: Tokens that all of them have room for.
    """
    import torch
    import xllamacpp  # noqa: PLC0415 - an extra of its own

    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    # It also listens, where nobody is to ask; from within this process it takes no key.
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [secrets.token_hex()]
    params.n_parallel, params.n_ctx, params.kv_unified = num_slots, context, True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = torch.get_num_threads()
    params.warmup, params.verbosity = False, -1
    return LlamaCpp(xllamacpp.Server(params), vocabulary, end)
