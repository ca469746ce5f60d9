"""The verdict: gates on both sides of their thresholds, and on documents without figures."""

from operator import itemgetter
from typing import Any

import pytest

from mens_pipeline.evaluation.results import EvalResults
from mens_pipeline.evaluation.statistics import Paired, compare_paired
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.promotion.gate import GateInputs, decide, summarize_gate
from mens_pipeline.promotion.policy import GateName, GateStatus, load_gate_policy, overall_status
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, evaluation, with_overall, with_suite, without_suite
from mens_pipeline_tests.every import every
from mens_pipeline_tests.promotion.verdicts import (
    CHAMPION,
    FULL,
    NOTHING,
    RESULTS,
    SAME,
    STRICT,
    coverage_of,
    inputs,
    manifest,
    outcome_of,
    rate,
)

_FROM_RESULTS = tuple(GateName)[:17]
_INDEPENDENT = " if tasks are independent"
_FROM_MANIFEST = tuple(GateName)[17:]


def _gain(gains: int, total: int = 200) -> EvalResults:
    difference = compare_paired([False] * total, [True] * gains + [False] * (total - gains))
    return RESULTS.model_copy(update={"parse_difference": difference})


def _too_long(number: int) -> EvalResults:
    asked = with_overall(RESULTS, num_tasks=3)
    return asked.model_copy(update={"num_too_long": number})


def _against_champion(parse: Paired, passes: Paired) -> EvalResults:
    assert RESULTS.champion is not None
    champion = RESULTS.champion.model_copy(update={"parse_difference": parse, "pass_difference": passes})
    return RESULTS.model_copy(update={"champion": champion})


@every("name", GateName)
def test_a_refusal_begins_with_both_numbers(name: GateName) -> None:
    """People see only the start of a line; units distinguish shares, p-values, points and speeds."""
    shown = {
        **dict.fromkeys((GateName.TEST_GAIN, GateName.INFILL_GAIN), ("p = 0.084", "p < 0.00338")),
        **dict.fromkeys(
            (GateName.REGRESSION, GateName.DECLINE, GateName.INFILL_REGRESSION), ("p = 0.084", "p ≥ 0.003")
        ),
        GateName.GAIN_OVER_BASE: ("+8.4 points", "+0.3 points"),
        GateName.THROUGHPUT: ("0.1 tokens/s", "0.00338 tokens/s"),
        GateName.SUITE_SIZE: ("20 held-out prompts from 3 files", "required 50 from 10"),
    }.get(name, ("8.4 %", "0.3 %"))
    message = "20 held-out prompts from 3 files, required 50 from 10; add programs"
    outcome = outcome_of(name, inputs()).model_copy(
        update={"measured": 0.084, "required": 0.00338, "message": message, "status": GateStatus.FAILED}
    )
    said = summarize_gate(outcome)

    assert all(figure in said[:80] for figure in shown), said
    assert summarize_gate(outcome.model_copy(update={"required": None})).endswith(
        ": 20 held-out prompts from 3 files, required 50 from 10"
    )


@pytest.mark.seed_row(69)
def test_every_gate_has_an_outcome_in_order() -> None:
    everything = decide(inputs(), STRICT)
    nothing = decide(GateInputs(None, "missing", None, "missing", None, is_benchmark_asked=True), STRICT)

    assert [outcome.name for outcome in everything] == [outcome.name for outcome in nothing] == list(GateName)
    assert all(outcome.passed for outcome in everything), everything
    assert not any(outcome.passed for outcome in nothing)


@every(
    "case",
    [
        (GateName.COVERAGE, *(with_overall(RESULTS, coverage=coverage_of(present)) for present in (15, 14)), 0.5),
        (GateName.COMPLETED_SHARE, _too_long(1), _too_long(2), 0.75),
        (GateName.GAIN_OVER_BASE, _gain(10), _gain(9), 0.05),
    ],
    ids=itemgetter(0),
)
def test_a_share_that_reaches_its_threshold_passes(case: tuple[GateName, EvalResults, EvalResults, float]) -> None:
    name, at, beyond, required = case
    passing, failing = outcome_of(name, inputs(at)), outcome_of(name, inputs(beyond))

    assert (passing.status, failing.status) == (GateStatus.PASSED, GateStatus.FAILED)
    assert (passing.passed, failing.passed) == (True, False)
    assert passing.required == failing.required == required
    assert passing.measured == pytest.approx(required)
    assert failing.measured != passing.measured
    assert (passing.source, passing.block) == ("eval_results.json", True)


@every(
    "case",
    [
        (GateName.SUPERVISED_RATIO, {"num_supervised_tokens": 100}, {"num_supervised_tokens": 99}, 0.1),
        (GateName.TRUNCATION, {"not_shown": {"too_long": 5}}, {"not_shown": {"too_long": 6}}, 0.5),
        (GateName.THROUGHPUT, {"trained_tokens": 100}, {"trained_tokens": 99}, 10.0),
        (GateName.THROUGHPUT, {"device": "cpu", "seconds": 100}, {"device": "cpu", "seconds": 101}, 1.0),
    ],
)
def test_a_training_that_reaches_its_threshold_passes(
    case: tuple[GateName, dict[str, Any], dict[str, Any], float],
) -> None:
    name, at, beyond, measured = case
    passing, failing = (outcome_of(name, inputs(of_training=manifest(**changes))) for changes in (at, beyond))

    assert (passing.passed, failing.passed) == (True, False)
    assert passing.measured == passing.required == measured
    assert passing.source == "training_manifest.json"


@every("problem", ["missing", "malformed (not an object)"])
def test_a_document_that_cannot_be_read_fails_the_gates_that_read_it(problem: str) -> None:
    no_results = GateInputs(None, problem, manifest(), "", None, is_benchmark_asked=True)
    no_manifest = GateInputs(RESULTS, "", None, problem, CHAMPION, is_benchmark_asked=True)
    without_results = {o.name: o for o in decide(no_results, STRICT) if not o.passed}
    without_manifest = {o.name: o for o in decide(no_manifest, STRICT) if not o.passed}

    assert tuple(without_results) == _FROM_RESULTS
    assert {o.message for o in without_results.values()} == {f"eval_results.json: {problem}"}
    assert tuple(without_manifest) == _FROM_MANIFEST
    assert {o.message for o in without_manifest.values()} == {f"training_manifest.json: {problem}"}
    assert all(o.measured is None and o.required is None for o in without_manifest.values())


@every(
    "case",
    [
        (85, GateStatus.PASSED, "floor 60.0 %: passes"),
        (72, GateStatus.PASSED, "floor 60.0 %: passes"),
        (69, GateStatus.UNDECIDED, "70.0 % must be measured (probability 0.4"),
        (61, GateStatus.FAILED, "70.0 % must be measured (probability 0.0"),
        (50, GateStatus.FAILED, "floor 60.0 %: fails"),
    ],
)
def test_a_parse_rate_must_be_measured_and_a_lower_one_certain(case: tuple[int, GateStatus, str]) -> None:
    hits, status, said = case
    thresholds = STRICT.model_copy(update={"min_parse_rate": 0.70, "parse_rate_floor": 0.60})
    results = with_suite(RESULTS, Suite.HELDOUT, parse_rate=rate(hits, 100))
    outcome = outcome_of(GateName.PARSE_RATE, inputs(results), thresholds)

    assert (outcome.status, outcome.required) == (status, 0.70), outcome.message
    assert said in outcome.message


@every(
    "case",
    [
        (60, GateStatus.PASSED, "resolve rate on held-out prompts 60/100 (60.0 %, "),
        (47, GateStatus.UNDECIDED, "50.0 % must be measured"),
        (30, GateStatus.FAILED, "floor 40.0 %: fails"),
    ],
)
def test_names_and_types_have_a_gate_that_warns_or_blocks(case: tuple[int, GateStatus, str]) -> None:
    """With the same three statuses as the parse rate; `ci` warns, and a release must pass it."""
    hits, status, said = case
    results = inputs(with_suite(RESULTS, Suite.HELDOUT, resolve_rate=rate(hits, 100)))
    for policy, blocks in (("ci", False), ("full", True)):
        thresholds = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml").thresholds(policy)
        outcome = outcome_of(GateName.RESOLVE_RATE, results, thresholds)

        assert (outcome.status, outcome.required, outcome.block) == (status, 0.50, blocks), outcome.message
        assert said in outcome.message
        assert overall_status(decide(results, thresholds)) is (status if blocks else GateStatus.PASSED)


def test_a_lowered_parse_rate_lowers_its_floor() -> None:
    """`VOX_EVAL_MIN_PARSE_RATE=0` requires nothing."""
    results = with_suite(RESULTS, Suite.HELDOUT, parse_rate=rate(1, 100))
    lowered = STRICT.replace_values(min_parse_rate=0.0, min_coverage=None, min_benchmark=None)

    assert outcome_of(GateName.PARSE_RATE, inputs(results), lowered).passed


@every(
    "case",
    [
        (GateName.PARSE_RATE, without_suite(RESULTS, Suite.HELDOUT)),
        (GateName.PARSE_RATE, with_suite(RESULTS, Suite.HELDOUT, parse_rate=rate(0, 0))),
        (GateName.RESOLVE_RATE, without_suite(RESULTS, Suite.HELDOUT)),
        (GateName.RESOLVE_RATE, with_suite(RESULTS, Suite.HELDOUT, resolve_rate=rate(0, 0))),
        (GateName.BENCHMARK, without_suite(RESULTS, Suite.BENCHMARK)),
        (GateName.BENCHMARK, with_suite(RESULTS, Suite.BENCHMARK, pass_at_1=rate(0, 0))),
        (GateName.TEST_RATE, with_overall(RESULTS, test_rate=rate(0, 0))),
        (GateName.TEST_GAIN, RESULTS.model_copy(update={"test_difference": NOTHING})),
        (GateName.COMPLETED_SHARE, with_overall(RESULTS, num_tasks=0)),
        (GateName.GAIN_OVER_BASE, RESULTS.model_copy(update={"parse_difference": NOTHING})),
        (GateName.REGRESSION, _against_champion(NOTHING, SAME)),
        (GateName.REGRESSION, _against_champion(SAME, NOTHING)),
        (GateName.REGRESSION, _against_champion(NOTHING, NOTHING)),
        (GateName.ANTI_STUB, with_overall(RESULTS, stub_rate=rate(0, 0))),
        (GateName.STOP_RATE, with_overall(RESULTS, stop_rate=rate(0, 0))),
    ],
    ids=itemgetter(0),
)
def test_a_missing_measurement_fails(case: tuple[GateName, EvalResults]) -> None:
    outcome = outcome_of(case[0], inputs(case[1]))

    assert (outcome.passed, outcome.measured) == (False, None)
    assert outcome.message.startswith("eval_results.json: ")


@every(
    "case",
    [
        (GateName.SUPERVISED_RATIO, {"num_tokens": 0}, "result.num_tokens is 0"),
        (GateName.TRUNCATION, {"num_rows": 0}, "result.num_rows is 0"),
        (GateName.THROUGHPUT, {"seconds": 0.0}, "result.seconds is 0"),
        (GateName.THROUGHPUT, {"device": "tpu"}, "device tpu has no minimum speed; add it to min_tokens_per_second"),
    ],
)
def test_a_missing_measurement_of_training_fails_by_name(case: tuple[GateName, dict[str, Any], str]) -> None:
    name, changes, message = case
    outcome = outcome_of(name, inputs(of_training=manifest(**changes)))

    assert (outcome.passed, outcome.measured) == (False, None)
    assert outcome.message == f"training_manifest.json: {message}"


def test_all_served_completions_must_parse() -> None:
    """No constrained completion may fail, unless the policy requires nothing."""
    served, failed = (
        evaluation(base=(BROKEN,) * 4, adapter=(GOOD, BROKEN, GOOD, GOOD), second=(None, second)).results
        for second in (GOOD, BROKEN)
    )
    unserved, name = RESULTS.model_copy(update={"fallback": None}), GateName.FALLBACK_PARSE_RATE
    good, bad, unasked = (outcome_of(name, inputs(results)) for results in (served, failed, unserved))
    asks_for_none = STRICT.model_copy(update={"min_fallback_parse_rate": 0.0})

    assert (good.passed, bad.passed, unasked.passed) == (True, False, False)
    assert "4/4 (100.0 %), required 100.0 %; 1 generated again" in good.message
    assert unasked.message.startswith("eval_results.json: ")
    assert unasked.message.endswith("set syntax: fallback in config/evaluation.yaml")
    assert outcome_of(name, inputs(failed), asks_for_none).passed


def test_hidden_tests_that_are_not_required_do_not_block() -> None:
    none = with_overall(RESULTS, test_rate=rate(0, 0))
    thresholds = STRICT.model_copy(update={"min_test_rate": 0.0})
    outcome = outcome_of(GateName.TEST_RATE, inputs(none), thresholds)

    assert (outcome.passed, outcome.measured, outcome.required) == (True, None, 0.0)
    assert "0/0, nothing required" in outcome.message


def test_a_gain_within_chance_is_undecided() -> None:
    """Five of a hundred reach the margin but prove nothing; a policy without a margin needs no proof."""
    by_luck = outcome_of(GateName.GAIN_OVER_BASE, inputs(_gain(5, 100)))
    asks_for_none = STRICT.model_copy(update={"min_gain_over_base": 0.0})

    assert by_luck.status is GateStatus.UNDECIDED
    assert by_luck.message.endswith("+5.0 points (p = 0.062), required +5.0 and p < 0.01")
    assert outcome_of(GateName.GAIN_OVER_BASE, inputs(_gain(5, 100)), asks_for_none).passed


@pytest.mark.seed_row(31, 69)
def test_a_benchmark_that_is_not_requested_does_not_block() -> None:
    failing = with_suite(RESULTS, Suite.BENCHMARK, pass_at_1=rate(0, 30))
    outcome = outcome_of(GateName.BENCHMARK, inputs(failing, is_benchmark_asked=False))

    assert (outcome.passed, outcome.measured, outcome.required) == (True, None, None)


_LOSES_7 = compare_paired([True] * 100, [True] * 93 + [False] * 7)
_LOSES_8 = compare_paired([True] * 100, [True] * 92 + [False] * 8)
_GAINS_8 = compare_paired([True] * 92 + [False] * 8, [True] * 100)


@every(
    "case",
    [
        ("same", SAME, SAME, True),
        ("parses a little less", _LOSES_7, SAME, True),
        ("parses less", _LOSES_8, SAME, False),
        ("passes less", SAME, _LOSES_8, False),
        ("one of each", _GAINS_8, _LOSES_8, False),
        ("better", _GAINS_8, _GAINS_8, True),
    ],
    ids=itemgetter(0),
)
def test_a_drop_against_the_champion_counts_if_it_is_beyond_chance(case: tuple[str, Paired, Paired, bool]) -> None:
    _, parse, passes, passed = case
    outcome = outcome_of(GateName.REGRESSION, inputs(_against_champion(parse, passes)))

    assert (outcome.passed, outcome.required) == (passed, 0.01)


@every(
    "case",
    [
        (
            0,
            198,
            "(p = 1.000), a drop counts if p < 0.01; a drop of 5.1 points is detected in 80 % of cases" + _INDEPENDENT,
        ),
        (10, 198, "; a drop of 11.3 points is detected in 80 % of cases" + _INDEPENDENT),
        (0, 4, "; too few tasks to detect a drop"),
    ],
)
def test_the_regression_gate_states_its_power(case: tuple[int, int, str]) -> None:
    """For equal models, for a chance difference, and for few tasks."""
    changed, total, said = case
    first, second = [False] * changed + [True] * (total - changed), [True] * (total - changed) + [False] * changed
    outcome = outcome_of(GateName.REGRESSION, inputs(_against_champion(compare_paired(first, second), SAME)))

    assert outcome.message.endswith(said)


def test_a_drop_at_the_threshold_passes() -> None:
    thresholds = STRICT.model_copy(update={"max_regression_p": _LOSES_7.p_value})
    outcome = outcome_of(GateName.REGRESSION, inputs(_against_champion(_LOSES_7, SAME)), thresholds)

    assert (outcome.passed, outcome.measured) == (True, _LOSES_7.p_value)


@every(
    "case",
    [
        (RESULTS, "d" * 64, "compared with champion cccccccccccc, but the champion is dddddddddddd"),
        (evaluation().results, CHAMPION, "compared with champion none, but the champion is cccccccccccc"),
    ],
    ids=itemgetter(2),
)
def test_a_comparison_with_another_champion_fails(case: tuple[EvalResults, str, str]) -> None:
    results, champion_key, message = case
    outcome = outcome_of(GateName.REGRESSION, inputs(results, champion_key=champion_key))

    assert (outcome.passed, outcome.message) == (False, f"eval_results.json: {message}")


def test_without_a_champion_there_is_no_regression() -> None:
    outcome = outcome_of(GateName.REGRESSION, inputs(evaluation().results, champion_key=None))

    assert (outcome.passed, outcome.message) == (True, "there is no champion yet")


@every("name", GateName)
def test_a_gate_that_only_warns_does_not_block(name: GateName) -> None:
    nothing = GateInputs(None, "missing", None, "missing", None, is_benchmark_asked=True)
    others = tuple(other for other in GateName if other is not name)
    outcomes = decide(nothing, FULL.model_copy(update={"warn_only": others}))

    assert [outcome.name for outcome in outcomes if outcome.block] == [name]
    assert overall_status(outcomes) is GateStatus.FAILED
    warned = decide(nothing, FULL.model_copy(update={"warn_only": tuple(GateName)}))
    assert overall_status(warned) is GateStatus.PASSED
