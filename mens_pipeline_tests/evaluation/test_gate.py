"""The verdict: every gate on both sides of its threshold, and on documents that do not say."""

from collections.abc import Callable
from typing import Any

import pytest

from mens_pipeline.evaluation.gate import GateInputs, GateOutcome, decide, is_passed
from mens_pipeline.evaluation.policy import GateName, Thresholds, load_gate_policy
from mens_pipeline.evaluation.results import EvalResults
from mens_pipeline.evaluation.scores import Coverage
from mens_pipeline.evaluation.statistics import Paired, Rate, paired, rate_of
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.evaluation.judged import (
    BROKEN,
    GOOD,
    evaluation,
    with_overall,
    with_suite,
    without_suite,
)

_FULL = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml").thresholds("full")
_STRICT = _FULL.model_copy(update={"warn_only": ()})
_CHAMPION = "c" * 64
_FROM_RESULTS = tuple(GateName)[:9]
_FROM_MANIFEST = tuple(GateName)[9:]


def _coverage(num_present: int) -> Coverage:
    names = [f"c{n}" for n in range(30)]
    return Coverage(
        present=tuple(names[:num_present]), missing=tuple(names[num_present:]), share=num_present / len(names)
    )


_GOOD = evaluation(base=(BROKEN,) * 4, adapter=(GOOD,) * 4, champion=(GOOD,) * 4).results
_NOTHING = paired([], [])
_SAME = paired([True] * 100, [True] * 100)
_RESULTS = with_overall(_GOOD, coverage=_coverage(15), test_rate=rate_of([True, False])).model_copy(
    update={"parse_difference": paired([False] * 8, [True] * 8)}
)


def _manifest(**changes: Any) -> dict[str, Any]:
    result = {
        "num_supervised_tokens": 100,
        "num_tokens": 1000,
        "num_rows": 10,
        "not_shown": {"too_long": 5},
        "trained_tokens": 100,
        "seconds": 10.0,
        "device": "cuda",
        **changes,
    }
    return {"result": {key: value for key, value in result.items() if value is not None}}


def _inputs(
    results: EvalResults | None = _RESULTS,
    manifest: dict[str, Any] | None = None,
    champion_key: str | None = _CHAMPION,
    *,
    is_benchmark_asked: bool = True,
) -> GateInputs:
    return GateInputs(results, "missing", manifest or _manifest(), "missing", champion_key, is_benchmark_asked)


def _outcome(name: GateName, inputs: GateInputs, thresholds: Thresholds = _STRICT) -> GateOutcome:
    return next(outcome for outcome in decide(inputs, thresholds) if outcome.name is name)


def _rate(hits: int, total: int) -> Rate:
    return rate_of([True] * hits + [False] * (total - hits))


def _gain(gains: int, total: int = 200) -> EvalResults:
    difference = paired([False] * total, [True] * gains + [False] * (total - gains))
    return _RESULTS.model_copy(update={"parse_difference": difference})


def _too_long(number: int) -> EvalResults:
    """Results of an exam of three tasks that were asked and so many that were not."""
    asked = with_overall(_RESULTS, num_tasks=3)
    return asked.model_copy(update={"num_too_long": number})


def test_every_gate_has_an_outcome_in_order() -> None:
    """None is left out, whatever is there."""
    everything = decide(_inputs(), _STRICT)
    nothing = decide(GateInputs(None, "missing", None, "missing", None, is_benchmark_asked=True), _STRICT)

    assert [outcome.name for outcome in everything] == [outcome.name for outcome in nothing] == list(GateName)
    assert all(outcome.passed for outcome in everything), everything
    assert not any(outcome.passed for outcome in nothing)


@pytest.mark.parametrize(
    ("name", "at", "beyond", "required"),
    [
        (
            GateName.PARSE_RATE,
            with_suite(_RESULTS, Suite.HELDOUT, parse_rate=_rate(7, 10)),
            with_suite(_RESULTS, Suite.HELDOUT, parse_rate=_rate(699, 1000)),
            0.7,
        ),
        (
            GateName.COVERAGE,
            with_overall(_RESULTS, coverage=_coverage(15)),
            with_overall(_RESULTS, coverage=_coverage(14)),
            0.5,
        ),
        (
            GateName.BENCHMARK,
            with_suite(_RESULTS, Suite.BENCHMARK, pass_at_1=_rate(3, 30)),
            with_suite(_RESULTS, Suite.BENCHMARK, pass_at_1=_rate(2, 30)),
            0.1,
        ),
        (
            GateName.TEST_RATE,
            with_overall(_RESULTS, test_rate=_rate(3, 30)),
            with_overall(_RESULTS, test_rate=_rate(2, 30)),
            0.1,
        ),
        (GateName.ASKED_SHARE, _too_long(1), _too_long(2), 0.75),
        (GateName.GAIN_OVER_BASE, _gain(10), _gain(9), 0.05),
        (
            GateName.ANTI_STUB,
            with_overall(_RESULTS, stub_rate=_rate(8, 100)),
            with_overall(_RESULTS, stub_rate=_rate(9, 100)),
            0.08,
        ),
        (
            GateName.STOP_RATE,
            with_overall(_RESULTS, stop_rate=_rate(8, 10)),
            with_overall(_RESULTS, stop_rate=_rate(79, 100)),
            0.8,
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, GateName) else "",
)
def test_a_rate_that_reaches_its_threshold_passes(
    name: GateName, at: EvalResults, beyond: EvalResults, required: float
) -> None:
    """And one beside it fails; both say what was measured."""
    passing, failing = _outcome(name, _inputs(at)), _outcome(name, _inputs(beyond))

    assert (passing.passed, failing.passed) == (True, False)
    assert passing.required == failing.required == required
    assert passing.measured == pytest.approx(required)
    assert failing.measured != passing.measured
    assert (passing.source, passing.block) == ("eval_results.json", True)


@pytest.mark.parametrize(
    ("name", "at", "beyond", "measured"),
    [
        (GateName.SUPERVISED_RATIO, {"num_supervised_tokens": 100}, {"num_supervised_tokens": 99}, 0.1),
        (GateName.TRUNCATION, {"not_shown": {"too_long": 5}}, {"not_shown": {"too_long": 6}}, 0.5),
        (GateName.THROUGHPUT, {"trained_tokens": 100}, {"trained_tokens": 99}, 10.0),
        (GateName.THROUGHPUT, {"device": "cpu", "seconds": 100}, {"device": "cpu", "seconds": 101}, 1.0),
    ],
    ids=["supervised", "truncation", "cuda", "cpu"],
)
def test_a_training_that_reaches_its_threshold_passes(
    name: GateName, at: dict[str, Any], beyond: dict[str, Any], measured: float
) -> None:
    """Likewise."""
    passing = _outcome(name, _inputs(manifest=_manifest(**at)))
    failing = _outcome(name, _inputs(manifest=_manifest(**beyond)))

    assert (passing.passed, failing.passed) == (True, False)
    assert passing.measured == passing.required == measured
    assert passing.source == "training_manifest.json"


@pytest.mark.parametrize("problem", ["missing", "malformed (no object)"])
def test_a_document_that_cannot_be_read_fails_the_gates_that_read_it(problem: str) -> None:
    """And no others."""
    no_results = GateInputs(None, problem, _manifest(), "", None, is_benchmark_asked=True)
    no_manifest = GateInputs(_RESULTS, "", None, problem, _CHAMPION, is_benchmark_asked=True)
    without_results = {o.name: o for o in decide(no_results, _STRICT) if not o.passed}
    without_manifest = {o.name: o for o in decide(no_manifest, _STRICT) if not o.passed}

    assert tuple(without_results) == _FROM_RESULTS
    assert {o.message for o in without_results.values()} == {f"eval_results.json: {problem}"}
    assert tuple(without_manifest) == _FROM_MANIFEST
    assert {o.message for o in without_manifest.values()} == {f"training_manifest.json: {problem}"}
    assert all(o.measured is None and o.required is None for o in without_manifest.values())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (GateName.PARSE_RATE, lambda: without_suite(_RESULTS, Suite.HELDOUT)),
        (GateName.PARSE_RATE, lambda: with_suite(_RESULTS, Suite.HELDOUT, parse_rate=_rate(0, 0))),
        (GateName.BENCHMARK, lambda: without_suite(_RESULTS, Suite.BENCHMARK)),
        (GateName.BENCHMARK, lambda: with_suite(_RESULTS, Suite.BENCHMARK, pass_at_1=_rate(0, 0))),
        (GateName.TEST_RATE, lambda: with_overall(_RESULTS, test_rate=_rate(0, 0))),
        (GateName.ASKED_SHARE, lambda: with_overall(_RESULTS, num_tasks=0)),
        (GateName.GAIN_OVER_BASE, lambda: _RESULTS.model_copy(update={"parse_difference": _NOTHING})),
        (GateName.REGRESSION, lambda: _against_champion(_NOTHING, _SAME)),
        (GateName.REGRESSION, lambda: _against_champion(_SAME, _NOTHING)),
        (GateName.REGRESSION, lambda: _against_champion(_NOTHING, _NOTHING)),
        (GateName.ANTI_STUB, lambda: with_overall(_RESULTS, stub_rate=_rate(0, 0))),
        (GateName.STOP_RATE, lambda: with_overall(_RESULTS, stop_rate=_rate(0, 0))),
    ],
)
def test_what_was_not_measured_fails(name: GateName, change: Callable[[], EvalResults]) -> None:
    """Nothing is passed over."""
    outcome = _outcome(name, _inputs(change()))

    assert (outcome.passed, outcome.measured) == (False, None)
    assert outcome.message.startswith("eval_results.json: ")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (GateName.SUPERVISED_RATIO, {"num_tokens": None}, "no result.num_tokens"),
        (GateName.SUPERVISED_RATIO, {"num_tokens": "many"}, "result.num_tokens is 'many', no number"),
        (GateName.SUPERVISED_RATIO, {"num_tokens": True}, "result.num_tokens is True, no number"),
        (GateName.SUPERVISED_RATIO, {"num_tokens": 0}, "result.num_tokens is 0"),
        (GateName.SUPERVISED_RATIO, {"num_supervised_tokens": float("inf")}, "is inf, no amount"),
        (GateName.TRUNCATION, {"num_rows": float("nan")}, "result.num_rows is nan, no amount"),
        (GateName.TRUNCATION, {"not_shown": {"too_long": -1}}, "result.not_shown.too_long is -1, no amount"),
        (GateName.TRUNCATION, {"not_shown": 3}, "no result.not_shown.too_long"),
        (GateName.TRUNCATION, {"not_shown": {}}, "no result.not_shown.too_long"),
        (GateName.THROUGHPUT, {"trained_tokens": 10**400}, "is 10000000000000000000, no amount"),
        (GateName.THROUGHPUT, {"seconds": 0}, "result.seconds is 0"),
        (GateName.THROUGHPUT, {"device": None}, "no result.device"),
        (GateName.THROUGHPUT, {"device": "tpu"}, "no speed is required of device tpu; add it to min_tokens_per_second"),
    ],
)
def test_a_manifest_that_does_not_say_fails_by_name(name: GateName, changes: dict[str, Any], message: str) -> None:
    """The key, and what stands there."""
    outcome = _outcome(name, _inputs(manifest=_manifest(**changes)))

    assert (outcome.passed, outcome.measured) == (False, None)
    assert outcome.message.startswith("training_manifest.json: ")
    assert outcome.message.endswith(message)


def test_hidden_tests_that_are_not_required_have_no_say() -> None:
    """A workspace of its own may have none."""
    none = with_overall(_RESULTS, test_rate=_rate(0, 0))
    thresholds = _STRICT.model_copy(update={"min_test_rate": 0.0})
    outcome = _outcome(GateName.TEST_RATE, _inputs(none), thresholds)

    assert (outcome.passed, outcome.measured, outcome.required) == (True, None, 0.0)
    assert outcome.message == "no task has hidden tests, and none are required"


def test_a_gain_that_chance_may_give_is_none() -> None:
    """Five of a hundred reach the margin and say nothing; a policy that asks for no gain asks for no proof of one."""
    by_luck = _outcome(GateName.GAIN_OVER_BASE, _inputs(_gain(5, 100)))
    asks_for_none = _STRICT.model_copy(update={"min_gain_over_base": 0.0})

    assert not by_luck.passed
    assert by_luck.message.endswith("+5.0 points (p = 0.062), required +5.0 and p < 0.01")
    assert _outcome(GateName.GAIN_OVER_BASE, _inputs(_gain(5, 100)), asks_for_none).passed


def test_a_benchmark_that_is_not_asked_for_has_no_say() -> None:
    """Not even a bad one."""
    failing = with_suite(_RESULTS, Suite.BENCHMARK, pass_at_1=_rate(0, 30))
    outcome = _outcome(GateName.BENCHMARK, _inputs(failing, is_benchmark_asked=False))

    assert (outcome.passed, outcome.measured, outcome.required) == (True, None, None)


def _against_champion(parse: Paired, passes: Paired) -> EvalResults:
    assert _RESULTS.champion is not None
    champion = _RESULTS.champion.model_copy(update={"parse_difference": parse, "pass_difference": passes})
    return _RESULTS.model_copy(update={"champion": champion})


_LOSES_7 = paired([True] * 100, [True] * 93 + [False] * 7)
_LOSES_8 = paired([True] * 100, [True] * 92 + [False] * 8)
_GAINS_8 = paired([True] * 92 + [False] * 8, [True] * 100)


@pytest.mark.parametrize(
    ("parse", "passes", "passed"),
    [
        (_SAME, _SAME, True),
        (_LOSES_7, _SAME, True),
        (_LOSES_8, _SAME, False),
        (_SAME, _LOSES_8, False),
        (_GAINS_8, _LOSES_8, False),
        (_GAINS_8, _GAINS_8, True),
    ],
    ids=["same", "parses a little less", "parses less", "passes less", "one of each", "better"],
)
def test_a_drop_against_the_champion_counts_when_it_is_no_chance(
    parse: Paired, passes: Paired, *, passed: bool
) -> None:
    """In what is parsed, or in what passes."""
    outcome = _outcome(GateName.REGRESSION, _inputs(_against_champion(parse, passes)))

    assert outcome.passed is passed
    assert outcome.required == 0.01


@pytest.mark.parametrize(
    ("gains", "losses", "total", "said"),
    [
        (
            0,
            0,
            198,
            "(p = 1.000), a drop counts below p = 0.01; one of 5.1 points is seen in 80 % of cases",
        ),
        (10, 10, 198, "; one of 11.3 points is seen in 80 % of cases"),
        (0, 0, 4, "; no drop can be seen on so few"),
    ],
    ids=["alike", "differ by chance", "few"],
)
def test_the_regression_gate_says_what_it_cannot_see(gains: int, losses: int, total: int, said: str) -> None:
    """Whoever reads the receipt knows how much worse a model may be that passed."""
    first = [False] * gains + [True] * (total - gains)
    second = [True] * (total - losses) + [False] * losses
    outcome = _outcome(GateName.REGRESSION, _inputs(_against_champion(paired(first, second), _SAME)))

    assert outcome.message.endswith(said)


def test_a_drop_at_the_threshold_is_no_drop() -> None:
    """It counts below."""
    thresholds = _STRICT.model_copy(update={"max_regression_p": _LOSES_7.p_value})
    outcome = _outcome(GateName.REGRESSION, _inputs(_against_champion(_LOSES_7, _SAME)), thresholds)

    assert (outcome.passed, outcome.measured) == (True, _LOSES_7.p_value)


@pytest.mark.parametrize(
    ("results", "champion_key", "message"),
    [
        (_RESULTS, "d" * 64, "compares with champion cccccccccccc, the champion is dddddddddddd"),
        (evaluation().results, _CHAMPION, "compares with champion none, the champion is cccccccccccc"),
    ],
    ids=["another", "none"],
)
def test_a_comparison_with_another_champion_is_none(results: EvalResults, champion_key: str, message: str) -> None:
    """The champion may have changed since."""
    outcome = _outcome(GateName.REGRESSION, _inputs(results, champion_key=champion_key))

    assert not outcome.passed
    assert outcome.message == f"eval_results.json: {message}"


def test_without_a_champion_there_is_no_regression() -> None:
    """The first model has nothing to be worse than."""
    outcome = _outcome(GateName.REGRESSION, _inputs(evaluation().results, champion_key=None))

    assert (outcome.passed, outcome.message) == (True, "there is no champion yet")


@pytest.mark.parametrize("name", GateName)
def test_a_gate_that_only_warns_does_not_block(name: GateName) -> None:
    """It fails all the same."""
    nothing = GateInputs(None, "missing", None, "missing", None, is_benchmark_asked=True)
    others = tuple(other for other in GateName if other is not name)
    outcomes = decide(nothing, _FULL.model_copy(update={"warn_only": others}))

    assert [outcome.name for outcome in outcomes if outcome.block] == [name]
    assert not is_passed(outcomes)
    assert is_passed(decide(nothing, _FULL.model_copy(update={"warn_only": tuple(GateName)})))
