"""Verdicts of gates on rates with few completions: passes, fails, undecided; and the cost of trying again."""

from collections.abc import Callable
from typing import Final

import pytest
from pydantic import ValidationError

from mens_pipeline.evaluation.results import EvalResults, Progress
from mens_pipeline.evaluation.statistics import compare_paired, mean_rate
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.promotion.gate import decide
from mens_pipeline.promotion.policy import GateName, GateOutcome, GateStatus, overall_status
from mens_pipeline_tests.evaluation.scored import PROGRESS, with_overall, with_suite, without_suite
from mens_pipeline_tests.every import every
from mens_pipeline_tests.promotion.verdicts import (
    RESULTS,
    STRICT,
    coverage_of,
    inputs,
    outcome_of,
    rate,
)


def _heldout(hits: int, total: int = 120) -> EvalResults:
    return with_suite(RESULTS, Suite.HELDOUT, parse_rate=rate(hits, total))


def _benchmark(hits: int) -> EvalResults:
    return with_suite(RESULTS, Suite.BENCHMARK, pass_at_1=rate(hits, 30))


_RATES: Final[dict[GateName, tuple[Callable[[int], EvalResults], tuple[int, int, int], float]]] = {
    GateName.PARSE_RATE: (_heldout, (94, 93, 74), 0.7),
    GateName.BENCHMARK: (_benchmark, (7, 6, 0), 0.1),
    GateName.TEST_RATE: (lambda hits: with_overall(RESULTS, test_rate=rate(hits, 30)), (7, 6, 0), 0.1),
    GateName.ANTI_STUB: (lambda hits: with_overall(RESULTS, stub_rate=rate(hits, 120)), (4, 9, 18), 0.08),
    GateName.STOP_RATE: (lambda hits: with_overall(RESULTS, stop_rate=rate(hits, 120)), (104, 96, 88), 0.8),
}
"""Gate -> results by number of hits, numbers that pass, are undecided and fail, and the threshold."""


@pytest.mark.seed_row(32, 67)
@every("name", _RATES)
def test_a_rate_passes_fails_or_is_undecided(name: GateName) -> None:
    """By the probability that the true rate is beyond the threshold; messages name the rate and its certainty."""
    results, numbers, required = _RATES[name]
    outcomes = [outcome_of(name, inputs(results(hits))) for hits in numbers]

    assert [outcome.status for outcome in outcomes] == [GateStatus.PASSED, GateStatus.UNDECIDED, GateStatus.FAILED]
    assert [outcome.passed for outcome in outcomes] == [True, False, False]
    assert {outcome.required for outcome in outcomes} == {required}
    assert all(outcome.measured is not None for outcome in outcomes)
    assert "of 0.970 required)" in outcomes[0].message
    assert ": undecided (probability 0." in outcomes[1].message
    assert ": fails (probability 0.0" in outcomes[2].message


def test_an_undecided_rate_explains_itself() -> None:
    """With the measurement, the number of files, the threshold, and the certainty."""
    shares = [1.0] * 87 + [0.0] * 25
    outcome = outcome_of(
        GateName.PARSE_RATE,
        inputs(with_suite(RESULTS, Suite.HELDOUT, parse_rate=mean_rate(shares, [str(n % 21) for n in range(112)]))),
    )

    assert "87/112 (77.7 %, 95 % interval over 21 files 69.0 to 84.9), floor 70.0 %: " in outcome.message
    assert outcome.message.endswith("undecided (probability 0.959 of 0.970 required)")


@pytest.mark.threat("M13")
@every("case", [(1, 1, 0.9696), (1, 2, 0.99662), (2, 1, 0.9924), (3, 1, 0.9966), (30, 2, 0.999996)])
def test_more_tries_require_more_certainty(case: tuple[int, int, float]) -> None:
    attempt, num_rounds, required = case
    progress = PROGRESS.model_copy(update={"attempt": attempt, "num_rounds": num_rounds})
    assert 1 - STRICT.allowed_chance(progress) == pytest.approx(required, abs=5e-5)

    def passes(results: EvalResults, progress: Progress = progress) -> bool:
        return outcome_of(GateName.PARSE_RATE, inputs(results.model_copy(update={"progress": progress}))).passed

    assert passes(RESULTS)
    at_first = [hits for hits in range(80, 121) if passes(_heldout(hits), PROGRESS)]
    now = [hits for hits in at_first if passes(_heldout(hits))]
    assert now == at_first[len(at_first) - len(now) :]
    assert (len(now) < len(at_first)) is (attempt > 1 or num_rounds > 1)


def test_the_certainty_of_a_late_try_is_not_rounded_to_one() -> None:
    progress = PROGRESS.model_copy(update={"attempt": 30})
    message = outcome_of(GateName.PARSE_RATE, inputs(RESULTS.model_copy(update={"progress": progress}))).message

    assert message.endswith(" of 0.999966 required)")


def test_all_tries_together_stay_below_the_stated_error() -> None:
    twice = PROGRESS.model_copy(update={"num_rounds": 2})
    tries = [twice.model_copy(update={"attempt": n, "round": r}) for n in range(1, 2000) for r in (1, 2)]
    spent = sum(STRICT.allowed_chance(progress) for progress in tries)

    assert 0.049 < spent < 1 - STRICT.confidence


@every("case", [(100, 20, True), (99, 20, False), (100, 19, False), (1, 1, False)])
def test_too_small_a_suite_fails_with_advice(case: tuple[int, int, bool]) -> None:
    num_tasks, num_files, passed = case
    rate = mean_rate([1.0] * num_tasks, [str(n % num_files) for n in range(num_tasks)])
    results = with_suite(RESULTS, Suite.HELDOUT, parse_rate=rate, num_tasks=num_tasks)
    outcome = outcome_of(GateName.SUITE_SIZE, inputs(results))

    assert (outcome.passed, outcome.measured, outcome.required) == (passed, num_tasks, 100)
    assert outcome.message.startswith(f"{num_tasks} held-out prompts from {num_files} files, required 100 from 20")
    assert outcome.message.endswith("or add programs") is not passed


def test_a_suite_without_held_out_prompts_is_too_small() -> None:
    outcome = outcome_of(GateName.SUITE_SIZE, inputs(without_suite(RESULTS, Suite.HELDOUT)))

    assert (outcome.status, outcome.measured) == (GateStatus.FAILED, 0)


@every(
    "case",
    [
        (6, 0, GateStatus.PASSED),
        (5, 0, GateStatus.UNDECIDED),
        (9, 1, GateStatus.PASSED),
        (3, 2, GateStatus.UNDECIDED),
        (0, 0, GateStatus.FAILED),
        (2, 3, GateStatus.FAILED),
    ],
)
def test_the_gain_in_hidden_tests_must_be_beyond_chance(case: tuple[int, int, GateStatus]) -> None:
    """Six gains without a loss have a probability of 1/64; five have 1/32, more than 0.0304."""
    gains, losses, status = case
    difference = compare_paired([False] * gains + [True] * (losses + 4), [True] * gains + [False] * losses + [True] * 4)
    results = RESULTS.model_copy(update={"test_difference": difference})
    outcome = outcome_of(GateName.TEST_GAIN, inputs(results))

    assert outcome.status is status
    assert f"the hidden tests of {gains} tasks that the base fails, fails {losses} that" in outcome.message
    assert outcome_of(GateName.TEST_GAIN, inputs(results), STRICT.model_copy(update={"needs_test_gain": False})).passed


def test_a_contradictory_outcome_is_rejected() -> None:
    stated = outcome_of(GateName.PARSE_RATE, inputs(_heldout(92))).model_dump()

    with pytest.raises(ValidationError, match="passed is True, the status undecided"):
        GateOutcome.model_validate({**stated, "passed": True})


def test_failed_gates_outweigh_undecided_ones() -> None:
    undecided = decide(inputs(_heldout(92)), STRICT)
    failed = decide(inputs(with_overall(_heldout(92), coverage=coverage_of(0))), STRICT)

    assert overall_status(decide(inputs(), STRICT)) is GateStatus.PASSED
    assert overall_status(undecided) is GateStatus.UNDECIDED
    assert overall_status(failed) is GateStatus.FAILED
