"""Sampling of tokens from logits: the same for evaluation and serving."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch

_COLDEST: Final = 1e-5
"""Scores divided by less are no numbers any more, and the most likely token wins anyway."""
_LIKELY: Final = 1024
"""Tokens that are looked at first; they hold next to all probability."""
_TRIED: Final = 64
"""The same where the most likely token is taken, unless it is refused."""


class LikelyTokens(NamedTuple):
    """The most likely next tokens of a completion, which a look at the device has brought: most likely first.

    Attributes:
        scores: Of all tokens, on the device.
        ids: Of the most likely ones.
        shares: Their shares of all probability; None where nothing is drawn.
    """

    scores: "torch.Tensor"
    ids: "torch.Tensor"
    shares: "torch.Tensor | None"


class Sampler:
    """Draws the tokens of one completion, from a generator of its own."""

    def __init__(self, temperature: float, top_p: float, start: str) -> None:
        """Begin a completion: the same `start` gives the same draws, a temperature of 0 the most likely token."""
        import torch

        self._temperature = temperature
        self._top_p = top_p
        self._generator = torch.Generator()
        digest = hashlib.sha256(start.encode()).digest()
        self._generator.manual_seed(int.from_bytes(digest[:7], "big"))

    def choose(self, scores: "torch.Tensor | LikelyTokens", refused: Sequence[int] = ()) -> int:
        """Choose the next token by the scores of all, as float32, but for those that are refused.

        The draw is among the others of the most likely ones; where none of these is left, it is the most likely token
        of all that are. Of `LikelyTokens`, nothing is brought from the device until that happens.
        """
        if isinstance(scores, LikelyTokens):
            likely = scores
        elif self._temperature < _COLDEST:
            return _most_likely(scores, refused)
        else:
            (likely,) = Sampler.look([self], scores[None])
        if likely.shares is not None:
            return self._draw(likely.shares, likely.ids, likely.scores, refused)
        found = next((token for token in likely.ids.tolist() if token not in refused), None)
        return _most_likely(likely.scores, refused) if found is None else found

    def _draw(
        self, shares: "torch.Tensor", ids: "torch.Tensor", scores: "torch.Tensor", refused: Sequence[int] = ()
    ) -> int:
        """Draw a token by the shares of the most likely ones, which come most likely first."""
        import torch

        if float(shares.sum()) < self._top_p and len(shares) < len(scores):
            # So flat that more tokens belong to it.
            shares, ids = torch.softmax(scores.cpu() / self._temperature, dim=-1).sort(descending=True, stable=True)
        # The most likely tokens up to and with the one that reaches top_p (Holtzman et al. 2020).
        kept = shares.cumsum(-1) - shares < self._top_p
        # As float32 a tiny top_p is 0, and none would be left.
        kept[0] = True
        shares = shares * kept
        if refused:
            shares = shares * ~torch.isin(ids, torch.tensor(refused))
            # At a low temperature the shares of the others are too small for a float32.
            if not shares.sum():
                return _most_likely(scores, refused)
        drawn = torch.multinomial(shares, 1, generator=self._generator)
        return int(ids[drawn])

    @staticmethod
    def choose_each(samplers: "Sequence[Sampler]", scores: "torch.Tensor") -> list[int]:
        """Return the next token of each of several completions: one look at the device for all that are drawn alike.

        Of `scores`, as float32, a row is of one completion.
        """
        import torch

        temperatures = [sampler._temperature for sampler in samplers]  # noqa: SLF001 - its own class
        are_cold = {temperature < _COLDEST for temperature in temperatures}
        if are_cold == {True}:
            most_likely: list[int] = scores.argmax(-1).tolist()
            return most_likely
        if len(are_cold) > 1:
            return [*map(Sampler.choose, samplers, scores)]
        return [*map(Sampler._draw, samplers, *_likely(scores, torch.tensor(temperatures)), scores)]

    @staticmethod
    def look(samplers: "Sequence[Sampler]", scores: "torch.Tensor") -> list[LikelyTokens]:
        """Return the likely tokens of several completions: one look at the device for all that are drawn alike.

        Of `scores`, as float32, a row is of one completion.
        """
        import torch

        temperatures = torch.tensor([sampler._temperature for sampler in samplers])  # noqa: SLF001 - its own class
        found: dict[int, LikelyTokens] = {}
        for is_cold in (True, False):
            rows = ((temperatures < _COLDEST) == is_cold).nonzero()[:, 0].tolist()
            own = scores if len(rows) == len(scores) else scores[rows]
            if rows and is_cold:
                for row, ids in zip(rows, _likeliest(own), strict=True):
                    found[row] = LikelyTokens(scores[row], ids, None)
            elif rows:
                for row, shares, ids in zip(rows, *_likely(own, temperatures[rows]), strict=True):
                    found[row] = LikelyTokens(scores[row], ids, shares)
        return [found[row] for row in range(len(scores))]


def _likeliest(scores: "torch.Tensor") -> "list[torch.Tensor]":
    """Return the most likely tokens of each row, in the order in which `argmax` would find them."""
    import torch

    values, ids = (column.cpu().numpy() for column in scores.topk(min(_TRIED, scores.shape[-1]), dim=-1))
    order = np.lexsort((ids, -values))  # of tokens that are as likely the first one
    ids, values = np.take_along_axis(ids, order, -1), np.take_along_axis(values, order, -1)
    # Others may be as likely as the last one.
    lasts = values[:, -1:] if values.shape[-1] < scores.shape[-1] else np.full((len(values), 1), -np.inf)
    return [torch.from_numpy(row[is_above]) for row, is_above in zip(ids, values > lasts, strict=True)]


def _most_likely(scores: "torch.Tensor", refused: Sequence[int]) -> int:
    """Return the most likely token that is not refused."""
    import torch

    if refused:
        scores = scores.index_fill(0, torch.tensor(refused, device=scores.device), -torch.inf)
    return int(scores.argmax())


def _likely(scores: "torch.Tensor", temperatures: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor]":
    """Return the most likely tokens of each row, most likely first: their shares of all probability, and their ids.

    To sort all tokens takes ten times as long as all else that is done to choose one.
    """
    tempered = scores / temperatures.to(scores.device)[:, None]
    values, ids = tempered.topk(min(_LIKELY, scores.shape[-1]), dim=-1)
    shares = (values - tempered.logsumexp(-1, keepdim=True)).exp()
    return shares.cpu(), ids.cpu()


def log_probabilities(scores: "torch.Tensor", tokens: Sequence[int]) -> list[float]:
    """Return `log_probability` of a token for each row of scores, by one look at the device."""
    import torch

    chosen = scores.gather(-1, torch.tensor(tokens, device=scores.device)[:, None])[:, 0]
    values: list[float] = (chosen - scores.logsumexp(-1)).tolist()
    return values


def log_probability(scores: "torch.Tensor", token: int) -> float:
    """Return the natural logarithm of a token's probability, at a temperature of 1 whatever it was sampled at."""
    return float(scores[token] - scores.logsumexp(-1))


def likeliest(scores: "torch.Tensor", num: int) -> list[tuple[int, float]]:
    """Return the most likely tokens, each with its log-probability; most likely first."""
    values, ids = scores.topk(min(num, scores.shape[-1]))
    return [*zip(ids.tolist(), (values - scores.logsumexp(-1)).tolist(), strict=True)]
