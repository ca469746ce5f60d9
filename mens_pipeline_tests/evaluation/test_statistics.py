"""Rates, intervals and tests, against known values."""

from itertools import combinations, pairwise, product
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from mens_pipeline.evaluation.statistics import (
    Paired,
    Rate,
    compare_paired,
    mean_rate,
    p_text,
    pass_at_k,
    power_of_regression,
    rate_of,
    smallest_drop,
)
from mens_pipeline_tests.every import every


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [(0, 10, 0.0, 0.217), (1, 10, 0.011, 0.381), (5, 10, 0.224, 0.776), (10, 10, 0.783, 1.0)],
)
def test_jeffreys_intervals(hits: int, total: int, low: float, high: float) -> None:
    """Table 5 of Brown, Cai and DasGupta 2001."""
    rate = rate_of([True] * hits + [False] * (total - hits))

    assert (rate.numerator, rate.denominator, rate.value) == (hits, total, hits / total)
    assert (rate.num_units, rate.num_effective) == (total, total)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=6e-4)


def test_the_probability_of_a_floor_follows_the_posterior() -> None:
    """For independent completions, computed elsewhere: 0.24, 0.54 and 0.96 for 75, 79 and 87 of 112."""
    rates = [rate_of([True] * hits + [False] * (112 - hits)) for hits in (75, 79, 87)]

    assert [rate.chance_of_at_least(0.7) for rate in rates] == pytest.approx([0.24, 0.54, 0.965], abs=5e-3)
    assert all(rate.chance_of_at_least(0) == 1 and rate.chance_of_at_least(1) == 0 for rate in rates)


def _of_files(*files: tuple[int, int]) -> Rate:
    shares = [share for hits, misses in files for share in [1.0] * hits + [0.0] * misses]
    units = [str(number) for number, (hits, misses) in enumerate(files) for _ in range(hits + misses)]
    return mean_rate(shares, units)


def test_completions_of_one_file_count_less_than_those_of_many() -> None:
    independent = rate_of([True] * 80 + [False] * 40)
    alike, extreme = _of_files(*[(8, 4)] * 10), _of_files(*[(12, 0)] * 7, (0, 12), (0, 12), (0, 12))
    one = _of_files((10, 5))

    assert alike.value == independent.value
    assert extreme.num_effective < 20 < alike.num_effective < independent.num_effective == 120
    assert extreme.chance_of_at_least(0.6) < 0.8 < independent.chance_of_at_least(0.6)
    assert one.num_effective < 6
    assert str(alike).startswith("80/120 (66.7 %, 95 % interval over 10 files ")


def test_files_without_misses_are_not_certain() -> None:
    assert _of_files(*[(6, 0)] * 5).num_effective < 20
    assert _of_files(*[(1, 0)] * 30).num_effective == 30


def test_more_completions_at_the_same_rate_raise_the_probability() -> None:
    rate = _of_files(*[(8, 4)] * 10)

    assert rate.chance_after(0.7, 0, 0.5) == pytest.approx(rate.chance_of_at_least(0.7))
    assert rate.chance_after(0.7, 120, 1.0) > 0.95 > rate.chance_after(0.7, 120, 0.7) > 0.1
    assert rate_of([]).chance_after(0.7, 10, 1.0) == 0


def test_a_rate_reads_as_people_write_it() -> None:
    rate, nothing = rate_of([True] * 37 + [False] * 3), rate_of([])

    assert (nothing.value, nothing.low, nothing.high, str(nothing)) == (None, 0.0, 1.0, "0/0")
    assert str(rate) == "37/40 (92.5 %, 95 % interval 81.3 to 97.8)"
    assert rate.short == "37/40 (92.5 %)"
    assert mean_rate([0.5, 0.75]).short == "1.25/2 (62.5 %)"


@every("num_samples", [1, 4, 6])
def test_pass_at_k_is_the_share_of_choices_with_a_hit(num_samples: int) -> None:
    for passed in range(num_samples + 1):
        samples = [n < passed for n in range(num_samples)]
        for k in range(1, num_samples + 1):
            choices = list(combinations(samples, k))
            expected = sum(any(choice) for choice in choices) / len(choices)

            assert pass_at_k(num_samples, passed, k) == pytest.approx(expected)
    with pytest.raises(ValueError, match="pass@3 needs at least 3 samples, found 2"):
        pass_at_k(2, 1, 3)


@pytest.mark.parametrize("shares", [[0.0, 1.0, 1.0], [1.0] * 20, []], ids=["mixed", "all", "none"])
def test_a_mean_of_whole_tasks_is_a_rate(shares: list[float]) -> None:
    assert mean_rate(shares) == rate_of(share == 1.0 for share in shares)


@pytest.mark.parametrize("shares", [[0.5], [0.5] * 40, [0.2, 0.4, 0.2]], ids=["one task", "all the same", "few"])
def test_few_or_equal_shares_are_not_certain(shares: list[float]) -> None:
    """A bootstrap would hardly vary, and its interval would be almost empty."""
    rate = mean_rate(shares)

    assert rate.value is not None
    assert rate.low < rate.value - 0.1 < rate.value + 0.1 < rate.high


def test_one_more_hit_never_lowers_the_lower_bound() -> None:
    """Nor the upper bound, from none to nine hits in 1,640 samples."""
    hits = [mean_rate([0.1] * number + [0.0] * (164 - number)) for number in range(30)]
    misses = [mean_rate([0.9] * number + [1.0] * (164 - number)) for number in range(30)]

    assert all(a.low <= b.low for a, b in pairwise(hits))
    assert all(a.high >= b.high for a, b in pairwise(misses))
    assert all(a.high <= b.high for a, b in pairwise(hits[:10]))
    assert all(a.low >= b.low for a, b in pairwise(misses[:10]))
    assert hits[0].high == pytest.approx(0.0152, abs=5e-5)
    assert hits[10].high < hits[9].high


def test_a_mean_of_shares_lies_within_its_interval() -> None:
    shares = Random(1).choices((0.0, 0.25, 0.5, 0.75, 1.0), k=400)  # noqa: S311 - no secret
    rate = mean_rate(shares)
    mean = sum(shares) / 400
    spread = 1.96 * (sum((share - mean) ** 2 for share in shares) / 400**2) ** 0.5

    assert rate.value == pytest.approx(mean)
    assert (rate.low, rate.high) == pytest.approx((mean - spread, mean + spread), abs=0.005)


def test_pairs_are_compared_exactly() -> None:
    """Of 10 tasks that differ 2 are gains: 2 * (1 + 10 + 45) / 1024 by hand."""
    first = [True] * 8 + [False] * 2 + [True] * 5 + [False] * 5
    second = [False] * 8 + [True] * 2 + [True] * 5 + [False] * 5
    compared = compare_paired(first, second)

    assert (compared.num_tasks, compared.only_first, compared.only_second) == (20, 8, 2)
    assert compared.difference == pytest.approx(-0.3)
    assert compared.p_value == pytest.approx(112 / 1024)


def test_equal_models_have_no_difference_and_task_counts_must_match() -> None:
    for outcomes in ([], [True, False]):
        compared = compare_paired(outcomes, outcomes)
        assert (compared.difference, compared.p_value) == (0.0, 1.0)
    with pytest.raises(ValueError, match="shorter"):
        compare_paired([True, False], [True])


def test_files_are_compared_as_a_whole() -> None:
    """Six gains in one file count as one: with probability one half all six would be losses."""
    second = [True] * 6 + [False] * 4
    apart, together = compare_paired([False] * 10, second), compare_paired([False] * 10, second, ["a"] * 6 + ["b"] * 4)

    assert (apart.p_better, together.p_better) == pytest.approx((1 / 64, 1 / 2))
    assert (apart.p_value, together.p_value) == pytest.approx((1 / 32, 1.0))
    assert (together.only_first, together.only_second, together.net_gains) == (0, 6, {6: 1})


def test_net_gains_of_several_sizes_are_enumerated() -> None:
    nets = [3, 1, -1, 2, -2, 1]
    first = [True for net in nets for _ in range(max(0, -net))] + [False for net in nets for _ in range(max(0, net))]
    units = [str(n) for n, net in enumerate(nets) for _ in range(max(0, -net))]
    units += [str(n) for n, net in enumerate(nets) for _ in range(max(0, net))]
    compared = compare_paired(first, [not done for done in first], units)
    sums = [sum(sign * abs(net) for sign, net in zip(signs, nets, strict=True)) for signs in product((-1, 1), repeat=6)]

    assert compared.net_gains == {-2: 1, -1: 1, 1: 2, 2: 1, 3: 1}
    assert compared.p_better == pytest.approx(sum(total >= sum(nets) for total in sums) / 64)


def test_a_gain_and_a_loss_in_one_file_cancel_out() -> None:
    compared = compare_paired([True, False], [False, True], ["a", "a"])

    assert (compared.only_first, compared.only_second, compared.net_gains, compared.p_value) == (1, 1, {}, 1.0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"difference": 0.0}, "the difference of 0 and 8 tasks is -0.08, not 0"),
        ({"p_value": 0.5}, "the p-value of 8 losses and 0 gains is 0.0078125, not 0.5"),
        ({"num_tasks": 7}, "8 losses and 0 gains are more than 7 tasks"),
        ({"num_tasks": 0}, "8 losses and 0 gains are more than 0 tasks"),
        ({"num_tasks": 10**30, "only_first": 10**30}, "less than or equal to 20000"),
        ({"net_gains": {-8: 1, 1: 1}}, "do not match 0 gains and 8 losses"),
        ({"net_gains": {-9: 1, 1: 1}}, "do not match 0 gains and 8 losses"),
        ({"net_gains": {-8: 1, 0: 4}}, "do not match 0 gains and 8 losses"),
        ({"net_gains": {-1: 10, 2: 1}}, "do not match 0 gains and 8 losses"),
    ],
)
def test_rejects_a_comparison_that_contradicts_its_counts(changes: dict[str, Any], problem: str) -> None:
    stated = {**compare_paired([True] * 100, [True] * 92 + [False] * 8).model_dump(), **changes}

    with pytest.raises(ValidationError, match=problem):
        Paired.model_validate(stated)


def test_small_p_values_are_not_written_as_zero() -> None:
    assert (p_text(0.0004), p_text(0.0125)) == ("p < 0.001", "p = 0.013")


def test_the_power_of_a_small_test_is_exact() -> None:
    """Five tasks, each lost with probability 1/2: only five losses have a p-value of at most 1/16."""
    assert power_of_regression(5, 0.5, 0.0, p_value=0.07) == pytest.approx(1 / 32)
    assert power_of_regression(5, 0.5, 0.0, p_value=0.0625) == 0.0
    assert power_of_regression(2, 0.5, 0.5, p_value=0.6) == pytest.approx(9 / 16)  # gains may hide a drop


def test_the_power_is_the_false_alarm_rate_without_a_drop_and_one_for_a_total_loss() -> None:
    assert 0.001 < power_of_regression(198, 0.0, 0.2, p_value=0.01) <= 0.005
    assert power_of_regression(198, 0.0, 0.0, p_value=0.01) == 0.0
    assert power_of_regression(198, 1.0, 0.0, p_value=0.01) == pytest.approx(1.0)


def test_a_drop_of_three_points_is_rarely_detected_at_198_tasks() -> None:
    """The figures of the documentation: the gate is for breakage, not for slow decline."""
    powers = [power_of_regression(198, 0.03, disagreement, 0.01) for disagreement in (0.0, 0.05, 0.1, 0.2)]

    assert powers == pytest.approx([0.246, 0.084, 0.053, 0.033], abs=5e-4)


@pytest.mark.parametrize(("disagreement", "drop"), [(0.0, 0.0513), (0.05, 0.0915), (0.1, 0.1126), (0.2, 0.1441)])
def test_finds_the_smallest_drop_with_enough_power(disagreement: float, drop: float) -> None:
    """Detected with a power of just 80 % at 198 tasks."""
    found = smallest_drop(198, disagreement, p_value=0.01)

    assert found is not None
    assert found == pytest.approx(drop, abs=5e-5)
    before, at = (power_of_regression(198, share, disagreement, 0.01) for share in (drop - 0.001, found))
    assert before < 0.8 <= at


def test_too_few_tasks_detect_no_drop() -> None:
    assert smallest_drop(6, 0.0, p_value=0.01) is None
    assert smallest_drop(8, 0.0, p_value=0.01) is not None


def test_rejects_impossible_shares() -> None:
    for drop, disagreement in ((-0.1, 0.5), (0.5, -0.1), (0.6, 0.5)):
        with pytest.raises(ValueError, match="must be shares of at most all tasks together"):
            power_of_regression(10, drop, disagreement, 0.01)
