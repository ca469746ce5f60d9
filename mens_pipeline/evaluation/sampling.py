"""How a token is drawn from the scores that a model gives: the same way when it is judged and when it serves."""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


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

    def choose(self, scores: "torch.Tensor") -> int:
        """The next token.

        Args:
            scores: Of every token, as float32.
        """
        import torch

        if self._temperature == 0:
            return int(scores.argmax())
        share = torch.softmax(scores.cpu() / self._temperature, dim=-1)
        ordered, ids = share.sort(descending=True, stable=True)
        # The most likely tokens up to and with the one that reaches top_p (Holtzman et al. 2020).
        kept = ordered.cumsum(-1) - ordered < self._top_p
        drawn = torch.multinomial(ordered * kept, 1, generator=self._generator)
        return int(ids[drawn])
