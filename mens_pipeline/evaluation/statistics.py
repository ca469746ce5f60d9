"""Rates with intervals, and exact tests of the difference between two models.

Cases of one source file are correlated, so the sampling unit is the file.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from math import comb
from typing import Final, Self

import numpy as np
from pydantic import Field, model_validator

from mens_pipeline.storage.validation import Strict

_ROUNDING: Final = 1e-9
"""Tolerance between a stored figure and the same figure computed from its parts."""

MOST_TASKS: Final = 20_000
"""Most tasks: the exact test takes seconds for this many, and a document could claim any number."""

_FEWEST: Final = 10
"""Fewest shares above 0, and below 1, to estimate the spread of shares from; fewer may spread too little by chance."""

_USUAL_LIKENESS: Final = 0.13
"""Prior correlation of two cases of one file, which matters if there are few files: for 112 held-out prompts from 21
files it gives the measured design effect of 1.9."""

_USUAL_WEIGHT: Final = 10  # weight of this prior, in files


class Rate(Strict):
    """A share with a 95 % interval."""

    numerator: float = Field(ge=0, description="Successes; a sum of shares if tasks have several samples.")
    denominator: int = Field(ge=0, description="Number of cases.")
    value: float | None = Field(ge=0, le=1, description="The share; null without cases.")
    num_units: int = Field(ge=0, description="Source files of the cases.")
    num_effective: float = Field(ge=0, description="Effective sample size, in independent cases.")
    low: float = Field(ge=0, le=1, description="Lower end of the interval.")
    high: float = Field(ge=0, le=1, description="Upper end of the interval.")

    def __str__(self) -> str:
        """Format for people: `37/40 (92.5 %, 95 % interval over 9 files 77.1 to 98.6)`."""
        if self.value is None:
            return self.short
        files = f" over {self.num_units} files" if self.num_units < self.denominator else ""
        return f"{self.short[:-1]}, 95 % interval{files} {self.interval})"

    @property
    def short(self) -> str:
        """The rate without its interval: `37/40 (92.5 %)`."""
        if self.value is None:
            return "0/0"
        count = f"{self.numerator:.2f}".rstrip("0").rstrip(".")
        return f"{count}/{self.denominator} ({100 * self.value:.1f} %)"

    @property
    def interval(self) -> str:
        """The interval alone, in percent: `77.1 to 98.6`; empty without cases."""
        return "" if self.value is None else f"{100 * self.low:.1f} to {100 * self.high:.1f}"

    def chance_of_at_least(self, floor: float) -> float:
        """Compute the posterior probability that the true rate is at least a floor, 0 to 1."""
        return _upper_tail(self.value, self.num_effective, floor)

    def chance_after(self, floor: float, num_more: int, share: float) -> float:
        """Compute the posterior probability that the rate reaches a floor after more cases, correlated like these.

        `share` is the success rate of the `num_more` new cases.
        """
        total = self.denominator + num_more
        if self.value is None:
            return 0.0
        value = (self.numerator + share * num_more) / total
        more = self.num_effective * total / self.denominator
        return _upper_tail(value, more, floor)


def rate_of(outcomes: Iterable[bool]) -> Rate:
    """Compute the share of independent outcomes that are true."""
    return mean_rate([float(outcome) for outcome in outcomes])


def mean_rate(shares: Sequence[float], units: Sequence[str] | None = None) -> Rate:
    """Compute the mean of one share per task, with the interval of Jeffreys' posterior for an effective sample size.

    `shares` (0 to 1) and `units` (source files) have an entry for each task; without units each task is its own unit.

    Source:
        Brown, Cai and DasGupta 2001 recommend Jeffreys' interval for small samples. The effective sample size is the
        number of tasks over the design effect, corrected for few files (Korn and Graubard 1998). Franco, Little, Louis
        and Slud 2019 compare such intervals for cluster samples. The design effect is shrunk towards the value of an
        earlier eval suite, since 21 files alone say little about it. In simulation (`mens_pipeline_tests.bench.gate`),
        a posterior that treats tasks as independent errs twice as often as it claims, and so does the bootstrap over
        files; a beta-binomial posterior is no better than this one and needs a grid.
    """
    total, size = float(sum(shares)), len(shares)
    if not size:
        return Rate(numerator=0, denominator=0, value=None, num_units=0, num_effective=0, low=0.0, high=1.0)
    members = defaultdict(list)
    for place, share in enumerate(shares):
        members[units[place] if units is not None else place].append(share)
    value = total / size
    effective = _effective(list(members.values()), value)
    low, high = _interval(value, effective)
    return Rate(
        numerator=total,
        denominator=size,
        value=value,
        num_units=len(members),
        num_effective=effective,
        low=low,
        high=high,
    )


def _effective(files: list[list[float]], value: float) -> float:
    from scipy import special  # noqa: PLC0415 - it takes a second to load, and the code location never needs it

    sizes = np.array([len(shares) for shares in files])
    size, num_files = int(sizes.sum()), len(files)
    is_spread = _is_spread([share for shares in files for share in shares])
    if num_files == size and not is_spread:
        return float(size)
    effect = usual = 1 + ((sizes**2).sum() / size - 1) * _USUAL_LIKENESS
    independent, freedom = value * (1 - value) / size, num_files - 1
    if independent > 0 and freedom:
        residuals = np.array([sum(shares) for shares in files]) - value * sizes
        measured = num_files / freedom * (residuals**2).sum() / size**2 / independent
        effect = (freedom * measured + _USUAL_WEIGHT * usual) / (freedom + _USUAL_WEIGHT)
    if not is_spread:
        effect = max(effect, 1.0)
    few = (special.ndtri(0.975) / special.stdtrit(freedom + _USUAL_WEIGHT, 0.975)) ** 2
    return float(size / effect * few)


def _is_spread(shares: list[float]) -> bool:
    """Return whether several samples of a task add information: enough shares are above 0, and enough below 1."""
    is_rare = min(sum(share > 0 for share in shares), sum(share < 1 for share in shares)) < _FEWEST
    return not is_rare and any(0 < share < 1 for share in shares) and len(set(shares)) > 1


def _posterior(value: float | None, num_effective: float) -> tuple[float, float]:
    hits = (value or 0.0) * num_effective
    return hits + 0.5, num_effective - hits + 0.5


def _upper_tail(value: float | None, num_effective: float, floor: float) -> float:
    from scipy import special  # noqa: PLC0415 - likewise

    return float(special.betaincc(*_posterior(value, num_effective), floor))


def _interval(value: float | None, num_effective: float) -> tuple[float, float]:
    from scipy import special  # noqa: PLC0415 - likewise

    if value is None:
        return 0.0, 1.0
    low, high = special.betaincinv(*_posterior(value, num_effective), (0.025, 0.975))
    return (0.0 if value == 0 else float(low)), (1.0 if value == 1 else float(high))


def pass_at_k(num_samples: int, num_passed: int, k: int) -> float:
    """Estimate the probability that at least one of k samples passes, without bias; `ValueError` for fewer than k.

    Source:
        Chen et al. 2021, Evaluating Large Language Models Trained on Code, equation 1.
    """
    if k > num_samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, found {num_samples}")
    return 1 - comb(num_samples - num_passed, k) / comb(num_samples, k)


class Paired(Strict):
    """Two models on the same tasks."""

    num_tasks: int = Field(ge=0, le=MOST_TASKS, description="Tasks that both completed.")
    only_first: int = Field(ge=0, le=MOST_TASKS, description="Tasks where only the first succeeds.")
    only_second: int = Field(ge=0, le=MOST_TASKS, description="Tasks where only the second succeeds.")
    net_gains: dict[int, int] = Field(
        description="Tasks of a source file where only the second succeeds, minus those where only the first does -> "
        "number of such files; files without a net gain are left out."
    )
    difference: float = Field(ge=-1, le=1, description="Rate of the second minus rate of the first; 0 without tasks.")
    p_value: float = Field(ge=0, le=1, description="p-value of the two-sided exact test that neither is better.")

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        losses, gains = self.only_first, self.only_second
        if losses + gains > self.num_tasks:
            raise ValueError(f"{losses} losses and {gains} gains are more than {self.num_tasks} tasks")
        net = sum(gain * files for gain, files in self.net_gains.items())
        moved = sum(abs(gain) * files for gain, files in self.net_gains.items())
        is_count = all(gain and files > 0 for gain, files in self.net_gains.items())
        if net != gains - losses or moved > losses + gains or not is_count:
            raise ValueError(f"net gains {self.net_gains} do not match {gains} gains and {losses} losses")
        difference = (gains - losses) / self.num_tasks if self.num_tasks else 0.0
        if abs(self.difference - difference) > _ROUNDING:
            raise ValueError(f"the difference of {gains} and {losses} tasks is {difference:g}, not {self.difference:g}")
        p_value = _two_sided(self.net_gains)
        if abs(self.p_value - p_value) > _ROUNDING:
            raise ValueError(f"the p-value of {losses} losses and {gains} gains is {p_value:g}, not {self.p_value:g}")
        return self

    @property
    def p_better(self) -> float:
        """The p-value of the one-sided exact test that the second model is not better."""
        return _chance_of_at_least(self.net_gains)


def compare_paired(first: Sequence[bool], second: Sequence[bool], units: Sequence[str] | None = None) -> Paired:
    """Compare two models task by task.

    `units` are the source files of the tasks; without them each task is its own unit.

    Source:
        Fisher's exact randomisation test of paired differences: if neither is better, the net gain of each file has
        either sign with probability one half. With a file for each task it is McNemar's exact test.
    """
    pairs = list(zip(first, second, strict=True))
    net: Counter[str | int] = Counter()
    for place, (a, b) in enumerate(pairs):
        net[units[place] if units is not None else place] += b - a
    net_gains = dict(sorted(Counter(gain for gain in net.values() if gain).items()))
    losses = sum(a and not b for a, b in pairs)
    gains = sum(b and not a for a, b in pairs)
    return Paired(
        num_tasks=len(pairs),
        only_first=losses,
        only_second=gains,
        net_gains=net_gains,
        difference=(gains - losses) / len(pairs) if pairs else 0.0,
        p_value=_two_sided(net_gains),
    )


def _two_sided(net_gains: dict[int, int]) -> float:
    opposite = {-gain: files for gain, files in net_gains.items()}
    return min(1.0, 2 * min(_chance_of_at_least(net_gains), _chance_of_at_least(opposite)))


def _chance_of_at_least(net_gains: dict[int, int]) -> float:
    return _compute_chance(tuple(net_gains.items()))


@lru_cache(maxsize=1024)  # computed for every comparison that is made or read
def _compute_chance(net_gains: tuple[tuple[int, int], ...]) -> float:
    from scipy import stats  # noqa: PLC0415 - likewise

    files: Counter[int] = Counter()
    for gain, count in net_gains:
        files[abs(gain)] += count
    # Index the chances by tasks won: of n files with a net gain of g either way, k gains win g * k tasks.
    chances = np.ones(1)
    for gain, count in files.items():
        steps = np.zeros(gain * count + 1)
        steps[::gain] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
        chances = np.convolve(chances, steps)
    won = sum(gain * count for gain, count in net_gains if gain > 0)
    return min(1.0, float(chances[won:].sum()))


def p_text(p_value: float) -> str:
    """Format a p-value for people: `p = 0.012` or `p < 0.001`."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"  # noqa: PLR2004 - three places are shown


_HALVINGS: Final = 20  # bisections of the interval from 0 to 1, for a precision of a millionth


def power_of_regression(num_tasks: int, drop: float, disagreement: float, p_value: float) -> float:
    """Compute the power of the paired exact test against a drop, to ten places; for a drop of 0, the false alarm rate.

    `drop` is the share of the independent tasks by which the candidate is worse. `disagreement` is the share on which
    two equally good models differ, half of them either way. Success rates do not matter: only tasks on which the models
    differ count. Each side of the two-sided test gets half of `p_value`. `ValueError` if drop or disagreement is
    negative, or their sum exceeds 1.

    Source:
        The unconditional power of McNemar's exact test, Duffy 1984.
    """
    from scipy import stats  # noqa: PLC0415 - likewise

    differing = drop + disagreement
    if drop < 0 or disagreement < 0 or differing > 1:
        raise ValueError(f"drop {drop} and disagreement {disagreement} must be shares of at most all tasks together")
    lost = (drop + disagreement / 2) / differing if differing else 0.0
    counts = np.arange(num_tasks + 1)
    most = np.array([_most_gains(count, p_value) for count in range(num_tasks + 1)])
    called = stats.binom.cdf(most, counts, 1 - lost)
    return float((stats.binom.pmf(counts, num_tasks, differing) * called).sum())


@cache
def smallest_drop(num_tasks: int, disagreement: float, p_value: float, power: float = 0.8) -> float | None:
    """Return the smallest drop that is detected with probability `power`; None if even the largest is not."""
    low, high = 0.0, 1 - disagreement
    if power_of_regression(num_tasks, high, disagreement, p_value) < power:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_enough = power_of_regression(num_tasks, middle, disagreement, p_value) >= power
        low, high = (low, middle) if is_enough else (middle, high)
    return high


@cache
def _most_gains(differing: int, p_value: float) -> int:
    """Return the most gains among the differing tasks that still count as a drop; -1 if no number does."""
    from scipy import stats  # noqa: PLC0415 - likewise

    gains = int(stats.binom.ppf(p_value / 2, differing, 0.5))
    while gains >= 0 and 2 * stats.binom.cdf(gains, differing, 0.5) >= p_value:
        gains -= 1
    return gains
