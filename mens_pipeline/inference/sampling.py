"""Sampling of tokens from logits, for evaluation and serving."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch

_COLDEST: Final = 1e-5
"""Lower temperatures would overflow the scores, and the most likely token wins anyway."""
_LIKELY: Final = 1024  # tokens to fetch first; they hold nearly all probability
_TRIED: Final = 64  # tokens to fetch first for greedy decoding under a constraint


class LikelyTokens(NamedTuple):
    """The most likely next tokens of a completion, fetched from the device, most likely first.

    `scores` are the scores of all tokens, on the device; `shares` are probabilities, None for greedy decoding.
    """

    scores: "torch.Tensor"
    ids: "torch.Tensor"
    shares: "torch.Tensor | None"


class Sampler:
    """Draws the tokens of one completion from its own random generator."""

    def __init__(self, temperature: float, top_p: float, start: str) -> None:
        """Seed the generator with `start`; a temperature of 0 always selects the most likely token."""
        import torch

        self._temperature = temperature
        self._top_p = top_p
        self._generator = torch.Generator()
        digest = hashlib.sha256(start.encode()).digest()
        self._generator.manual_seed(int.from_bytes(digest[:7], "big"))

    def choose(self, scores: "torch.Tensor | LikelyTokens", refused: Sequence[int] = ()) -> int:
        """Choose the next token from the scores of all tokens, in float32, except refused ones.

        It draws from the most likely tokens; if all of them are refused, it returns the most likely of the others. With
        `LikelyTokens`, only that, or a flat distribution, fetches scores from the device.
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
        import torch

        if float(shares.sum()) < self._top_p and len(shares) < len(scores):
            # The distribution is so flat that top_p needs more tokens.
            shares, ids = torch.softmax(scores.cpu() / self._temperature, dim=-1).sort(descending=True, stable=True)
        # Nucleus sampling: the most likely tokens up to the one that reaches top_p (Holtzman et al. 2020).
        kept = shares.cumsum(-1) - shares < self._top_p
        # A tiny top_p is 0 in float32 and would leave none.
        kept[0] = True
        shares = shares * kept
        if refused:
            shares = shares * ~torch.isin(ids, torch.tensor(refused))
            # At a low temperature the other shares may be 0 in float32.
            if not shares.sum():
                return _most_likely(scores, refused)
        drawn = torch.multinomial(shares, 1, generator=self._generator)
        return int(ids[drawn])

    @staticmethod
    def choose_each(samplers: "Sequence[Sampler]", scores: "torch.Tensor") -> list[int]:
        """Choose the next token of several completions; one fetch from the device if all are greedy or all sampled.

        `scores`, in float32, has a row for each completion.
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
        """Fetch the likely tokens of several completions from the device, once for greedy and once for sampled ones.

        `scores`, in float32, has a row for each completion.
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
    """Return the most likely tokens of each row in the order of repeated `argmax`."""
    import torch

    values, ids = (column.cpu().numpy() for column in scores.topk(min(_TRIED, scores.shape[-1]), dim=-1))
    order = np.lexsort((ids, -values))  # equally likely tokens by their ids
    ids, values = np.take_along_axis(ids, order, -1), np.take_along_axis(values, order, -1)
    # Tokens that were not fetched may be as likely as the last one.
    lasts = values[:, -1:] if values.shape[-1] < scores.shape[-1] else np.full((len(values), 1), -np.inf)
    return [torch.from_numpy(row[is_above]) for row, is_above in zip(ids, values > lasts, strict=True)]


def _most_likely(scores: "torch.Tensor", refused: Sequence[int]) -> int:
    import torch

    if refused:
        scores = scores.index_fill(0, torch.tensor(refused, device=scores.device), -torch.inf)
    return int(scores.argmax())


def _likely(scores: "torch.Tensor", temperatures: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor]":
    """Return shares and ids of the most likely tokens of each row, most likely first.

    Sorting all tokens would take ten times as long as the rest of choosing one.
    """
    tempered = scores / temperatures.to(scores.device)[:, None]
    values, ids = tempered.topk(min(_LIKELY, scores.shape[-1]), dim=-1)
    shares = (values - tempered.logsumexp(-1, keepdim=True)).exp()
    return shares.cpu(), ids.cpu()


def log_probabilities(scores: "torch.Tensor", tokens: Sequence[int]) -> list[float]:
    """Return the natural log-probability of one token for each row of scores, at a temperature of 1."""
    import torch

    chosen = scores.gather(-1, torch.tensor(tokens, device=scores.device)[:, None])[:, 0]
    values: list[float] = (chosen - scores.logsumexp(-1)).tolist()
    return values


def likeliest(scores: "torch.Tensor", num: int) -> list[tuple[int, float]]:
    """Return the `num` most likely tokens with their log-probabilities, most likely first."""
    values, ids = scores.topk(min(num, scores.shape[-1]))
    return [*zip(ids.tolist(), (values - scores.logsumexp(-1)).tolist(), strict=True)]
