"""How large a drop against the champion must be before the regression gate sees it."""

from functools import cache
from math import comb, exp, lgamma, log
from typing import Final

_STEPS: Final = 20
"""Halvings of the interval from 0 to 1: the smallest drop to a millionth."""

_NEGLIGIBLE: Final = 1e-12
"""Chances below this are left out; of hundreds of tasks most numbers of differences are that rare."""


def power_of_regression(num_tasks: int, drop: float, disagreement: float, p_value: float) -> float:
    """The chance that the paired exact test calls a drop that is there.

    The share of tasks that a model does has no part in it: only tasks on which the two models differ count.

    Args:
        num_tasks: Tasks that both answered.
        drop: Share of the tasks by which the candidate is worse.
        disagreement: Share of the tasks on which two equally good models differ, half of them either way.
        p_value: A drop is called below this, of the two-sided test; each side has half of it.

    Returns:
        The chance to ten places, for tasks that are independent of each other; the false alarm rate for a drop of 0.

    Raises:
        ValueError: Drop and disagreement are no shares, or make up more than all tasks.

    Source:
        The unconditional power of McNemar's exact test, Duffy 1984.
    """
    differing = drop + disagreement
    if drop < 0 or disagreement < 0 or differing > 1:
        raise ValueError(f"drop {drop} and disagreement {disagreement} must be shares of at most all tasks together")
    lost = (drop + disagreement / 2) / differing if differing else 0.0
    chances = ((count, _chance_of(count, num_tasks, differing)) for count in range(num_tasks + 1))
    return sum(
        chance * _chance_of_at_most(_most_gains(count, p_value), count, 1 - lost)
        for count, chance in chances
        if chance > _NEGLIGIBLE
    )


@cache
def smallest_drop(num_tasks: int, disagreement: float, p_value: float, power: float = 0.8) -> float | None:
    """The smallest drop that is called with a given chance; None when not even the largest is.

    Args:
        num_tasks: Tasks that both answered.
        disagreement: Share of the tasks on which two equally good models differ.
        p_value: A drop is called below this.
        power: The chance.
    """
    low, high = 0.0, 1 - disagreement
    if power_of_regression(num_tasks, high, disagreement, p_value) < power:
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        is_enough = power_of_regression(num_tasks, middle, disagreement, p_value) >= power
        low, high = (low, middle) if is_enough else (middle, high)
    return high


@cache
def _most_gains(differing: int, p_value: float) -> int:
    """The most gains among so many differing tasks at which the others still count as a drop; -1 for none."""
    gains, ways = 0, 1
    while 2 * gains < differing and 2 * (ways / 2**differing) < p_value:
        gains += 1
        ways += comb(differing, gains)
    return gains - 1


def _chance_of_at_most(hits: int, trials: int, share: float) -> float:
    return sum(_chance_of(count, trials, share) for count in range(hits + 1))


def _chance_of(hits: int, trials: int, share: float) -> float:
    """The binomial distribution, by logarithms so that many trials stay within floats."""
    if share in {0.0, 1.0}:
        return float(hits == trials * share)
    ways = lgamma(trials + 1) - lgamma(hits + 1) - lgamma(trials - hits + 1)
    return exp(ways + hits * log(share) + (trials - hits) * log(1 - share))
