"""Rates with their uncertainty, and what a difference between two models is worth."""

from collections.abc import Iterable, Sequence
from math import comb, sqrt
from random import Random
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Z: Final = 1.959963984540054
"""The 97.5 % point of the normal distribution: 95 % lie within."""

_ROUNDING: Final = 1e-9
"""How far a figure that is read may be from what it follows from."""

_MOST_TASKS: Final = 100_000
"""More than a model is ever asked, and as many as the exact test takes a second for; a document may say anything."""

_RESAMPLES: Final = 2_000

_FEWEST: Final = 10
"""Shares beside 0, and beside 1, that say how far shares spread; of fewer, drawing again makes intervals too narrow."""


class Rate(BaseModel):
    """A share with a 95 % interval."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    numerator: float = Field(ge=0, description="What counts; a sum of shares where a task has several samples.")
    denominator: int = Field(ge=0, description="Out of how many.")
    value: float | None = Field(ge=0, le=1, description="The share; null over nothing.")
    low: float = Field(ge=0, le=1, description="Lower end of the interval.")
    high: float = Field(ge=0, le=1, description="Upper end.")

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        share = self.numerator / self.denominator if self.denominator else None
        if not _is_near(self.value, share):
            raise ValueError(f"{self.numerator:g} of {self.denominator} is {share}, not {self.value}")
        return self

    def __str__(self) -> str:
        """As people read it: `37/40 (92.5 %, 95 % interval 80.1 to 97.4)`."""
        if self.value is None:
            return self.short
        return f"{self.short[:-1]}, 95 % interval {100 * self.low:.1f} to {100 * self.high:.1f})"

    @property
    def short(self) -> str:
        """Without the interval: `37/40 (92.5 %)`."""
        if self.value is None:
            return "0/0"
        count = f"{self.numerator:.2f}".rstrip("0").rstrip(".")
        return f"{count}/{self.denominator} ({100 * self.value:.1f} %)"


def rate_of(outcomes: Iterable[bool]) -> Rate:
    """The share of outcomes that are true, with Wilson's interval.

    Args:
        outcomes: One for each case.

    Source:
        Wilson 1927; advised for small numbers by Brown, Cai and DasGupta 2001.
    """
    values = list(outcomes)
    return _wilson(sum(values), len(values))


def _wilson(hits: float, total: int) -> Rate:
    if not total:
        return Rate(numerator=0, denominator=0, value=None, low=0.0, high=1.0)
    share = hits / total
    spread = _Z * sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    centre, scale = share + _Z**2 / (2 * total), 1 + _Z**2 / total
    low, high = max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
    return Rate(numerator=hits, denominator=total, value=share, low=low, high=high)


def pass_at_k(num_samples: int, num_passed: int, k: int) -> float:
    """The chance that at least one of k samples passes, without bias.

    Args:
        num_samples: Samples drawn.
        num_passed: Those that passed.
        k: At most `num_samples`.

    Raises:
        ValueError: There are fewer samples than k.

    Source:
        Chen et al. 2021, Evaluating Large Language Models Trained on Code, equation 1.
    """
    if k > num_samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, found {num_samples}")
    return 1 - comb(num_samples - num_passed, k) / comb(num_samples, k)


def mean_rate(shares: Sequence[float], seed: int = 0) -> Rate:
    """The mean of one share a task; its interval is that of the mean over tasks drawn again and again.

    Args:
        shares: Of each task, 0 to 1.
        seed: Of the drawing.

    Source:
        The percentile bootstrap over tasks, Efron 1979. Where all shares are 0 or 1, all the same, or few are above 0
        or below 1, it is Wilson's interval: no shares with this mean spread further than those.
    """
    is_rare = min(sum(share > 0 for share in shares), sum(share < 1 for share in shares)) < _FEWEST
    if is_rare or len(set(shares)) == 1 or all(share in {0.0, 1.0} for share in shares):
        return _wilson(sum(shares), len(shares))
    random = Random(seed)  # noqa: S311 - statistics, no secret
    size = len(shares)
    means = sorted(sum(random.choices(shares, k=size)) / size for _ in range(_RESAMPLES))
    cut = round(0.025 * _RESAMPLES)
    total = sum(shares)
    return Rate(numerator=total, denominator=size, value=total / size, low=means[cut], high=means[-1 - cut])


class Paired(BaseModel):
    """Two models on the same tasks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_tasks: int = Field(ge=0, le=_MOST_TASKS, description="Tasks that both answered.")
    only_first: int = Field(ge=0, le=_MOST_TASKS, description="Tasks that the first alone does.")
    only_second: int = Field(ge=0, le=_MOST_TASKS, description="Tasks that the second alone does.")
    difference: float = Field(ge=-1, le=1, description="The rate of the second less that of the first; 0 over nothing.")
    p_value: float = Field(ge=0, le=1, description="Of the two-sided exact test that neither is better.")

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        losses, gains = self.only_first, self.only_second
        if losses + gains > self.num_tasks:
            raise ValueError(f"{losses} and {gains} tasks differ, more than {self.num_tasks} in all")
        difference = (gains - losses) / self.num_tasks if self.num_tasks else 0.0
        if not _is_near(self.difference, difference):
            raise ValueError(f"the difference of {gains} and {losses} is {difference:g}, not {self.difference:g}")
        p_value = _two_sided(losses, gains)
        if not _is_near(self.p_value, p_value):
            raise ValueError(f"the p-value of {losses} and {gains} is {p_value:g}, not {self.p_value:g}")
        return self


def paired(first: Sequence[bool], second: Sequence[bool]) -> Paired:
    """Compare two models task by task.

    Args:
        first: Whether the first model does each task.
        second: Whether the second does, in the same order.

    Source:
        McNemar 1947 in its exact form: of the tasks on which they differ, each model has half by chance.
    """
    pairs = list(zip(first, second, strict=True))
    losses = sum(a and not b for a, b in pairs)
    gains = sum(b and not a for a, b in pairs)
    return Paired(
        num_tasks=len(pairs),
        only_first=losses,
        only_second=gains,
        difference=(gains - losses) / len(pairs) if pairs else 0.0,
        p_value=_two_sided(losses, gains),
    )


def _two_sided(losses: int, gains: int) -> float:
    return min(1.0, 2 * chance_of_at_most(min(losses, gains), losses + gains))


def _is_near(stated: float | None, computed: float | None) -> bool:
    """Whether a stated figure is the computed one, but for rounding."""
    if stated is None or computed is None:
        return stated is computed
    return abs(stated - computed) <= _ROUNDING


def p_text(p_value: float) -> str:
    """A p-value as people read it.

    Args:
        p_value: 0 to 1.
    """
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"  # noqa: PLR2004 - three places are shown


def chance_of_at_most(hits: int, trials: int) -> float:
    """The chance of at most so many hits when each trial hits with one half.

    Args:
        hits: Of the binomial distribution.
        trials: Likewise.
    """
    ways = total = 1
    for n in range(hits):
        ways = ways * (trials - n) // (n + 1)
        total += ways
    return float(total / 2**trials)
