"""Rates, intervals and tests, against values known otherwise."""

from itertools import combinations, pairwise
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from mens_pipeline.evaluation.statistics import (
    Paired,
    Rate,
    chance_of_at_most,
    mean_rate,
    p_text,
    paired,
    pass_at_k,
    rate_of,
)


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (1, 10, 0.0179, 0.4042),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (37, 40, 0.8014, 0.9742),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_wilson_intervals(hits: int, total: int, low: float, high: float) -> None:
    """The last is the example of Newcombe 1998, table I; the others follow from his formula."""
    rate = rate_of([True] * hits + [False] * (total - hits))

    assert (rate.numerator, rate.denominator, rate.value) == (hits, total, hits / total)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=5e-5)


def test_a_rate_over_nothing_is_unknown() -> None:
    """It may be anything."""
    rate = rate_of([])

    assert (rate.value, rate.low, rate.high, str(rate)) == (None, 0.0, 1.0, "0/0")


def test_a_rate_reads_as_people_write_it() -> None:
    """Numerator and denominator, per cent, interval."""
    rate = rate_of([True] * 37 + [False] * 3)

    assert str(rate) == "37/40 (92.5 %, 95 % interval 80.1 to 97.4)"
    assert rate.short == "37/40 (92.5 %)"
    assert mean_rate([0.5, 0.75]).short == "1.25/2 (62.5 %)"


@pytest.mark.parametrize("num_samples", [1, 4, 6])
def test_pass_at_k_is_the_share_of_choices_with_a_hit(num_samples: int) -> None:
    """Against every choice of k samples, one by one."""
    for passed in range(num_samples + 1):
        samples = [n < passed for n in range(num_samples)]
        for k in range(1, num_samples + 1):
            choices = list(combinations(samples, k))
            expected = sum(any(choice) for choice in choices) / len(choices)

            assert pass_at_k(num_samples, passed, k) == pytest.approx(expected)


def test_pass_at_k_needs_k_samples() -> None:
    """There is no estimate of what was not drawn."""
    with pytest.raises(ValueError, match="pass@3 needs at least 3 samples, found 2"):
        pass_at_k(2, 1, 3)


@pytest.mark.parametrize("shares", [[0.0, 1.0, 1.0], [1.0] * 20, []], ids=["mixed", "all", "none"])
def test_a_mean_of_whole_tasks_is_a_rate(shares: list[float]) -> None:
    """Of one sample a task, nothing is left to draw again."""
    assert mean_rate(shares) == rate_of(share == 1.0 for share in shares)


@pytest.mark.parametrize("shares", [[0.5], [0.5] * 40, [0.2, 0.4, 0.2]], ids=["one task", "all the same", "few"])
def test_few_or_equal_shares_are_no_certainty(shares: list[float]) -> None:
    """Drawn again they would hardly differ, and the interval would be next to nothing."""
    rate = mean_rate(shares)

    assert rate.value is not None
    assert rate.low < rate.value - 0.1 < rate.value + 0.1 < rate.high


def test_one_hit_more_never_says_that_the_rate_is_lower() -> None:
    """From none of 1,640 samples on: one says no more of the highest rate than none, and nor do nine."""
    hits = [mean_rate([0.1] * number + [0.0] * (164 - number)) for number in range(30)]
    misses = [mean_rate([0.9] * number + [1.0] * (164 - number)) for number in range(30)]

    assert all(a.low <= b.low for a, b in pairwise(hits))
    assert all(a.high >= b.high for a, b in pairwise(misses))
    assert all(a.high <= b.high for a, b in pairwise(hits[:10]))
    assert all(a.low >= b.low for a, b in pairwise(misses[:10]))
    assert hits[0].high == pytest.approx(0.0229, abs=5e-5)
    assert hits[10].high < hits[9].high


def test_a_mean_of_shares_lies_within_its_interval() -> None:
    """The bootstrap agrees with the normal interval of the mean where there are many tasks."""
    shares = Random(1).choices((0.0, 0.25, 0.5, 0.75, 1.0), k=400)  # noqa: S311 - no secret
    rate = mean_rate(shares)
    mean = sum(shares) / 400
    spread = 1.96 * (sum((share - mean) ** 2 for share in shares) / 400**2) ** 0.5

    assert rate.value == pytest.approx(mean)
    assert (rate.low, rate.high) == pytest.approx((mean - spread, mean + spread), abs=0.005)


def test_the_same_seed_gives_the_same_interval() -> None:
    """Nothing else decides it."""
    shares = [n % 5 / 4 for n in range(30)]

    assert mean_rate(shares, seed=3) == mean_rate(shares, seed=3)
    assert mean_rate(shares, seed=3) != mean_rate(shares, seed=4)


def test_pairs_are_compared_exactly() -> None:
    """Of 10 tasks that differ 2 are gains: 2 * (1 + 10 + 45) / 1024 by hand."""
    first = [True] * 8 + [False] * 2 + [True] * 5 + [False] * 5
    second = [False] * 8 + [True] * 2 + [True] * 5 + [False] * 5
    compared = paired(first, second)

    assert (compared.num_tasks, compared.only_first, compared.only_second) == (20, 8, 2)
    assert compared.difference == pytest.approx(-0.3)
    assert compared.p_value == pytest.approx(112 / 1024)


@pytest.mark.parametrize("outcomes", [[], [True, False]], ids=["nothing", "all alike"])
def test_models_that_do_not_differ_are_equal(outcomes: list[bool]) -> None:
    """There is nothing to be surprised at."""
    compared = paired(outcomes, outcomes)

    assert (compared.difference, compared.p_value) == (0.0, 1.0)


def test_only_the_same_tasks_are_compared() -> None:
    """A missing outcome is a mistake of the caller."""
    with pytest.raises(ValueError, match="shorter"):
        paired([True, False], [True])


@pytest.mark.parametrize(
    ("hits", "trials", "chance"),
    [(0, 0, 1.0), (0, 3, 1 / 8), (1, 3, 1 / 2), (700, 1400, 0.5107), (49_800, 100_000, 0.1035)],
)
def test_the_binomial_distribution(hits: int, trials: int, chance: float) -> None:
    """Also beyond the range of floats."""
    assert chance_of_at_most(hits, trials) == pytest.approx(chance, abs=5e-5)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"value": 0.99}, "1 of 100 is 0.01, not 0.99"),
        ({"value": None}, "1 of 100 is 0.01, not None"),
        ({"denominator": 0}, "1 of 0 is None, not 0.01"),
        ({"numerator": 1.0001}, "not 0.01"),
    ],
)
def test_a_rate_that_does_not_follow_from_its_counts_is_none(changes: dict[str, Any], problem: str) -> None:
    """A document that was edited by hand is malformed."""
    stated = {**rate_of([True] + [False] * 99).model_dump(), **changes}

    with pytest.raises(ValidationError, match=problem):
        Rate.model_validate(stated)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"difference": 0.0}, "the difference of 0 and 8 is -0.08, not 0"),
        ({"p_value": 0.5}, "the p-value of 8 and 0 is 0.0078125, not 0.5"),
        ({"num_tasks": 7}, "8 and 0 tasks differ, more than 7 in all"),
        ({"num_tasks": 0}, "8 and 0 tasks differ, more than 0 in all"),
        ({"num_tasks": 10**30, "only_first": 10**30}, "less than or equal to 100000"),
    ],
)
def test_a_comparison_that_does_not_follow_from_its_counts_is_none(changes: dict[str, Any], problem: str) -> None:
    """Likewise."""
    stated = {**paired([True] * 100, [True] * 92 + [False] * 8).model_dump(), **changes}

    with pytest.raises(ValidationError, match=problem):
        Paired.model_validate(stated)


def test_small_p_values_are_not_written_as_zero() -> None:
    """They never are."""
    assert (p_text(0.0004), p_text(0.0125)) == ("p < 0.001", "p = 0.013")
