"""Power of the regression gate: the smallest drop against the champion that it detects."""

from functools import cache
from typing import Final

import numpy as np

_STEPS: Final = 20
"""Halvings of the interval from 0 to 1: the smallest drop to a millionth."""


def power_of_regression(num_tasks: int, drop: float, disagreement: float, p_value: float) -> float:
    """Return the probability that the paired exact test detects a drop that is there.

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
    from scipy import stats  # noqa: PLC0415 - it takes a second to load, and the code location does without

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
    """Return the smallest drop that is detected with a probability of `power`; None when not even the largest is."""
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
    """Return the most gains among so many differing tasks at which the others still count as a drop; -1 for none."""
    from scipy import stats  # noqa: PLC0415 - it takes a second to load, and the code location does without

    gains = int(stats.binom.ppf(p_value / 2, differing, 0.5))
    while gains >= 0 and 2 * stats.binom.cdf(gains, differing, 0.5) >= p_value:
        gains -= 1
    return gains
