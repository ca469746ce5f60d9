"""How a token is drawn from the scores that a model gives: the same way when it is judged and when it serves."""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch

_COLDEST: Final = 1e-5
"""A temperature below it: scores divided by it are no numbers any more, and the most likely token wins anyway."""


class Syntax(StrEnum):
    """Whether the parser steers what a model writes."""

    FREE = "free"
    """It does not."""
    CONSTRAINED = "constrained"
    """Only tokens are written after which the answer can still become a program."""
    FALLBACK = "fallback"
    """An answer that was written freely and is no program is generated again, constrained."""


class Sampler:
    """Draws the tokens of one answer, from a generator of its own."""

    def __init__(self, temperature: float, top_p: float, start: str) -> None:
        """Begin an answer.

        Args:
            temperature: 0: always the most likely token.
            top_p: Share of probability that is sampled from.
            start: What the draws depend on; the same text gives the same draws.
        """
        import torch

        self._temperature = temperature
        self._top_p = top_p
        self._generator = torch.Generator()
        digest = hashlib.sha256(start.encode()).digest()
        self._generator.manual_seed(int.from_bytes(digest[:7], "big"))

    def choose(self, scores: "torch.Tensor", refused: Sequence[int] = ()) -> int:
        """The next token.

        Args:
            scores: Of every token, as float32.
            refused: Tokens that may not be chosen. The draw is among the others of the most likely ones; where none of
                these is left, the most likely token of all that are.
        """
        import torch

        allowed = scores.index_fill(0, torch.tensor(refused, device=scores.device), -torch.inf) if refused else scores
        if self._temperature < _COLDEST:
            return int(allowed.argmax())
        share = torch.softmax(scores.cpu() / self._temperature, dim=-1)
        ordered, ids = share.sort(descending=True, stable=True)
        # The most likely tokens up to and with the one that reaches top_p (Holtzman et al. 2020).
        kept = ordered.cumsum(-1) - ordered < self._top_p
        # As float32 a tiny top_p is 0, and none would be left.
        kept[0] = True
        if refused:
            kept &= ~torch.isin(ids, torch.tensor(refused))
            if not kept.any():
                return int(allowed.argmax())
        drawn = torch.multinomial(ordered * kept, 1, generator=self._generator)
        return int(ids[drawn])


def log_probability(scores: "torch.Tensor", token: int) -> float:
    """How likely a model holds a token, as a natural logarithm; at a temperature of 1, whatever it was drawn at.

    Args:
        scores: Of every token, as float32.
        token: The one that was chosen.
    """
    return float(scores[token] - scores.logsumexp(-1))
