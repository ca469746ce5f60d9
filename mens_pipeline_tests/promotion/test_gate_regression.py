"""The regression gate passes a model that is not worse, and detects one that is."""

from random import Random

import pytest

from mens_pipeline.evaluation.results import EvalResults
from mens_pipeline.evaluation.statistics import compare_paired, power_of_regression
from mens_pipeline.promotion.gate import GateInputs, decide
from mens_pipeline.promotion.policy import GateName, load_gate_policy
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.evaluation.scored import GOOD, evaluation

_NUM_TASKS = 112 + 86
_NUM_RUNS = 200
_THRESHOLDS = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml").thresholds("ci")
_RESULTS = evaluation(champion=(GOOD,) * 3).results

_Outcomes = list[tuple[bool, bool]]
"""For each task: whether the completion parses, whether it passes."""


def _outcomes(random: Random, chances: list[tuple[float, float]]) -> _Outcomes:
    parses = [random.random() < parse for parse, _ in chances]
    return [(parsed, parsed and random.random() < pass_) for parsed, (_, pass_) in zip(parses, chances, strict=True)]


def _compare(first: _Outcomes, candidate: _Outcomes) -> EvalResults:
    assert _RESULTS.champion is not None
    parse, passes = (compare_paired([o[n] for o in first], [o[n] for o in candidate]) for n in range(2))
    differences = {"parse_difference": parse, "pass_difference": passes}
    champion = _RESULTS.champion.model_copy(update=differences)
    return _RESULTS.model_copy(update={**differences, "champion": champion})


def _passes(results: EvalResults, name: GateName) -> bool:
    inputs = GateInputs(results, "", None, "missing", "c" * 64, is_benchmark_asked=True)
    return next(outcome.passed for outcome in decide(inputs, _THRESHOLDS) if outcome.name is name)


def _is_refused(results: EvalResults) -> bool:
    return not _passes(results, GateName.REGRESSION)


def test_an_equal_model_is_rarely_called_worse_or_better() -> None:
    """Each task has its own probability, the same in both runs, so the model neither drops nor gains."""
    random = Random(20_240_607)  # noqa: S311 - no secret
    num_called = num_gains = 0
    for _ in range(_NUM_RUNS):
        chances = [(random.betavariate(2, 1), random.betavariate(1, 1)) for _ in range(_NUM_TASKS)]
        results = _compare(_outcomes(random, chances), _outcomes(random, chances))
        num_called += _is_refused(results)
        num_gains += _passes(results, GateName.GAIN_OVER_BASE)

    assert num_called <= 0.01 * _NUM_RUNS
    assert num_gains <= 0.01 * _NUM_RUNS


def test_a_model_that_lost_a_fifth_is_called_worse() -> None:
    random = Random(7)  # noqa: S311 - no secret
    num_called = 0
    for _ in range(_NUM_RUNS):
        chances = [(random.betavariate(4, 1), 0.5) for _ in range(_NUM_TASKS)]
        worse = [(parse * 0.75, pass_) for parse, pass_ in chances]
        num_called += _is_refused(_compare(_outcomes(random, chances), _outcomes(random, worse)))

    assert num_called >= 0.8 * _NUM_RUNS


def test_the_computed_power_matches_the_gate() -> None:
    random = Random(3)  # noqa: S311 - no secret
    num_runs, num_called = 2_000, 0
    for _ in range(num_runs):
        drawn = [random.random() for _ in range(_NUM_TASKS)]
        champion, candidate = ([(low <= n < high,) * 2 for n in drawn] for low, high in ((0, 0.65), (0.15, 0.7)))
        num_called += _is_refused(_compare(champion, candidate))
    power = power_of_regression(_NUM_TASKS, 0.1, 0.1, _THRESHOLDS.max_regression_p)

    assert num_called / num_runs == pytest.approx(power, abs=0.035)
