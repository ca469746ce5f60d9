"""Token by token, only what can still become a piece that stands in its hole. For a generation process alone.

A token is taken where prefix and piece together can still become a program; the end only where the whole, with what
stands behind the hole, is one. Where the likeliest tokens lead to no such end, the piece is given up.
"""

from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.inference.constraint import repeats_itself
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.language import Mode, Viability, ViableText, analyze

if TYPE_CHECKING:
    import torch

_MOST_TRIES: Final = 160
"""Tokens that are tried at most for one piece, those that are taken among them."""
_MOST_READ: Final = 120_000
"""Characters that are parsed at most for one piece; a statement without an end is parsed again for each token."""
_WHOLE_SHARE: Final = 4
"""Parsing the whole takes so many times less per character than asking how it may go on."""
_REPLACEMENT: Final = "\ufffd"
"""What a tokenizer gives for a character of which bytes are missing."""


class InsertConstraint:
    """The piece that one completion has written so far, and which tokens may follow it."""

    def __init__(self, tokenizer: Any, stop: frozenset[int], mode: Mode, prefix: str, suffix: str) -> None:
        """Begin with an empty piece between two texts; any of `stop` ends it."""
        self._tokenizer = tokenizer
        self._stop = stop
        self._mode = mode
        self._prefix, self._suffix = prefix, suffix
        self._num_tries = 0
        self._tokens: list[int] = []
        self._piece = ""
        self._viable = ViableText(mode)
        self._viable.append(prefix)
        self._num_read = 0
        self.is_forced = self._viable.viability is Viability.DEAD

    def choose(self, scores: "torch.Tensor", sampler: Sampler) -> int:
        """Choose the next token; where none fits, the end, and the piece is given up."""
        refused: list[int] = []
        while not self.is_forced and self._num_tries < _MOST_TRIES and self._num_read < _MOST_READ:
            self._num_tries += 1
            token = sampler.choose(scores, refused)
            if self._may_follow(token):
                self._take(token)
                return token
            refused.append(token)
        self.is_forced = True
        return min(self._stop)

    def _may_follow(self, token: int) -> bool:
        if token in self._stop:
            whole = self._prefix + self._piece + self._suffix
            self._num_read += len(whole) // _WHOLE_SHARE
            return analyze(whole, self._mode).ok
        text = self._decode([*self._tokens, token])
        more = text.removeprefix(self._piece)
        if not text.startswith(self._piece) or not more or _REPLACEMENT in more:
            return False
        self._num_read += len(self._viable.unsettled)
        is_dead = self._viable.would_be(more) is Viability.DEAD
        return not is_dead and not ("\n" in more and repeats_itself(self._prefix + text))

    def _take(self, token: int) -> None:
        if token in self._stop:
            return
        self._tokens.append(token)
        text = self._decode(self._tokens)
        self._viable.append(text.removeprefix(self._piece))
        self._piece = text

    def _decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text
