"""Decide whether a model is good enough to be promoted: a pure function from documents to outcomes.

A document that is missing or malformed fails the gates that read it; no gate is skipped.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import floor, log10
from typing import Final, NamedTuple

from mens_pipeline.evaluation.results import RESULTS, ChampionComparison, EvalResults, InfillModel
from mens_pipeline.evaluation.statistics import Paired, Rate, p_text, smallest_drop
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.models.adapter import MANIFEST, TrainingManifest, TrainingResult
from mens_pipeline.promotion.policy import GateName, GateOutcome, GateStatus, Measured, Reserve, Thresholds


@dataclass(frozen=True, slots=True)
class GateInputs:
    """Figures and training manifest; an unreadable one is None, with the problem in words.

    `champion_key` names the baseline; `is_benchmark_asked` says whether the benchmark counts (`VOX_BENCHMARK`).
    """

    results: EvalResults | None
    results_problem: str
    manifest: TrainingManifest | None
    manifest_problem: str
    champion_key: str | None
    is_benchmark_asked: bool


_SHARES: Final = ("{0:.1f} %", "{0:.1f} %")
_POINTS: Final = ("{0:+.1f} points", "{0:+.1f} points")
_COUNTS: Final = ("{1:g}", "{1:g}")
_SPEEDS: Final = ("{1:.1f} tokens/s", "{1:g} tokens/s")
_GAINS: Final = ("p = {1:.3g}", "p < {1:.3g}")
_DROPS: Final = ("p = {1:.3g}", "p ≥ {1:.3g}")
_CHANCES: Final = frozenset((_GAINS, _DROPS))


class Gate(NamedTuple):
    """A gate.

    Attributes:
        source: The document that it reads.
        measure: The function that decides.
        units: Formats of the measured and the required value; field 0 is 100 times the value, field 1 the value.
    """

    title: str
    source: str
    measure: Callable[[GateInputs, Thresholds], Measured]
    units: tuple[str, str] = _SHARES

    @property
    def measures_chance(self) -> bool:
        """Whether it compares p-values."""
        return self.units in _CHANCES

    def format_figures(self, outcome: GateOutcome) -> tuple[str, str]:
        """Format the measured and the required value with their units: `84.6 %`, `p < 0.00338`, `nothing`."""
        measured, required = outcome.measured, outcome.required
        is_free = required is None or (not required and self.units is _SHARES)
        return (
            "-" if measured is None else self.units[0].format(100 * measured, measured),
            "nothing" if is_free else self.units[1].format(100 * (required or 0), required),
        )


def summarize_gate(outcome: GateOutcome) -> str:
    """Summarize an outcome in a few words: `parse rate 84.6 % measured, 95.0 % required`."""
    name = outcome.name.replace("_", " ")
    gate = GATES[outcome.name]
    if outcome.measured is None or outcome.required is None or gate.units is _COUNTS:  # shown with a count of files
        return f"{name}: {outcome.message.partition(';')[0]}"
    measured, required = gate.format_figures(outcome)
    doubt = ", undecided" if outcome.status is GateStatus.UNDECIDED else ""
    return f"{name} {measured} measured, {required} required{doubt}"


class _UnreadableError(Exception):
    """A figure is missing; the message says why."""


def decide(inputs: GateInputs, thresholds: Thresholds) -> tuple[GateOutcome, ...]:
    """Return the outcome of every gate, in the order of `GATES`."""
    return tuple(outcome for outcome, _ in measure_all(inputs, thresholds))


def measure_all(inputs: GateInputs, thresholds: Thresholds) -> Iterator[tuple[GateOutcome, Measured]]:
    """Yield the outcome of every gate, with the finding that says whether more prompts may help."""
    for name, gate in GATES.items():
        try:
            found = gate.measure(inputs, thresholds)
        except _UnreadableError as error:
            found = Measured(GateStatus.FAILED, None, None, f"{gate.source}: {error}")
        passed = found.verdict if isinstance(found.verdict, bool) else found.verdict is GateStatus.PASSED
        failed = GateStatus.FAILED if isinstance(found.verdict, bool) else found.verdict
        outcome = GateOutcome(
            name=name,
            status=GateStatus.PASSED if passed else failed,
            passed=passed,
            block=name not in thresholds.warn_only,
            measured=found.measured,
            required=found.required,
            message=found.message,
            source=gate.source,
        )
        yield outcome, found


def _results(inputs: GateInputs) -> EvalResults:
    if inputs.results is None:
        raise _UnreadableError(inputs.results_problem)
    return inputs.results


def _training(inputs: GateInputs) -> TrainingResult:
    if inputs.manifest is None:
        raise _UnreadableError(inputs.manifest_problem)
    return inputs.manifest.result


def _compare_rate(  # noqa: PLR0913 - the inputs of a comparison
    what: str,
    rate: Rate,
    bound: float,
    inputs: GateInputs,
    thresholds: Thresholds,
    *,
    is_ceiling: bool = False,
    is_of_tests: bool = False,
) -> Measured:
    """Decide by the probability that the true rate is at least a floor, or below a ceiling.

    `is_of_tests` tells whether the rate is only over prompts with hidden tests.
    """
    if rate.value is None:
        raise _UnreadableError(f"{what}: nothing was measured")
    allowed = thresholds.allowed_chance(_results(inputs).progress)
    places = max(3, 1 - floor(log10(allowed)))  # otherwise a late try would seem to require certainty
    chance = rate.chance_of_at_least(bound)
    probability = 1 - chance if is_ceiling else chance
    compared = f"(probability {probability:.{places}f} of {1 - allowed:.{places}f} required)"
    if probability >= 1 - allowed:
        status, reason = GateStatus.PASSED, f"passes {compared}"
    # Refusal is the default, so it spends no error budget.
    elif probability <= 1 - thresholds.confidence:
        status, reason = GateStatus.FAILED, f"fails (probability {probability:.3f})"
    else:
        status, reason = GateStatus.UNDECIDED, f"undecided {compared}"

    def may_pass(reserve: Reserve) -> bool:
        num_more = reserve.num_tested if is_of_tests else reserve.num_tasks
        chance = rate.chance_after(bound, num_more, rate.low if is_ceiling else rate.high)
        return (1 - chance if is_ceiling else chance) >= reserve.required

    message = f"{what} {rate}, {'ceiling' if is_ceiling else 'floor'} {100 * bound:.1f} %: {reason}"
    return Measured(status, rate.value, bound, message, may_pass)


def _on_heldout(name: GateName, inputs: GateInputs, thresholds: Thresholds) -> Measured:
    """Require a measured rate, and near certainty that the true rate is above a lower floor."""
    scores = _results(inputs).adapter.suites.get(Suite.HELDOUT)
    if scores is None:
        raise _UnreadableError("no held-out task was evaluated")
    rate: Rate = getattr(scores, name)
    required, surely = thresholds.on_heldout(name)
    what = f"{name.replace('_', ' ')} on held-out prompts"
    found = _compare_rate(what, rate, surely, inputs, thresholds)
    assert rate.value is not None, "measured, or the line above would have raised"  # noqa: S101 - an internal invariant

    def may_pass(reserve: Reserve) -> bool:
        return rate.high >= required and found.may_pass(reserve)

    if rate.value >= required:
        return found._replace(required=required, may_pass=may_pass)
    probability = rate.chance_of_at_least(required)
    is_lost = found.verdict is GateStatus.FAILED or probability <= 1 - thresholds.confidence
    status = GateStatus.FAILED if is_lost else GateStatus.UNDECIDED
    measured = f"{100 * required:.1f} % must be measured (probability {probability:.3f} that the true rate is as high)"
    return Measured(status, rate.value, required, f"{found.message}; {measured}", may_pass)


def _fallback_parse_rate(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    fallback, required = _results(inputs).fallback, thresholds.min_fallback_parse_rate
    if not required:
        return Measured(GateStatus.PASSED, None, required, "parse rate with the fallback: nothing required")
    if fallback is None:
        raise _UnreadableError(
            "no completion was made with the fallback; set syntax: fallback in config/evaluation.yaml"
        )
    rate = fallback.scores.overall.parse_rate
    share = _ratio(rate.numerator, rate.denominator, "the number of completions")
    message = f"parse rate with the fallback {rate.short}, required {100 * required:.1f} %"
    return Measured(share >= required, share, required, f"{message}; {fallback.num_constrained} generated again")


def _suite_size(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    scores = _results(inputs).adapter.suites.get(Suite.HELDOUT)
    num_tasks, num_files = (scores.num_tasks, scores.parse_rate.num_units) if scores is not None else (0, 0)
    is_enough, message = thresholds.check_size(num_tasks, num_files)
    return Measured(is_enough, num_tasks, thresholds.min_heldout_tasks, message, grows=True)


def _coverage(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    coverage, required = _results(inputs).adapter.overall.coverage, thresholds.min_coverage
    present, total = len(coverage.present), len(coverage.present) + len(coverage.missing)
    message = f"accepted completions show {present}/{total} constructs, required {100 * required:.1f} %"
    return Measured(coverage.share >= required, coverage.share, required, message, grows=True)


def _benchmark(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    if not inputs.is_benchmark_asked:
        return Measured(GateStatus.PASSED, None, None, "the benchmark is not enabled (VOX_BENCHMARK)")
    scores = _results(inputs).adapter.suites.get(Suite.BENCHMARK)
    if scores is None:
        raise _UnreadableError("the benchmark was not run")
    what, rate = "benchmark pass@1", scores.pass_at_1
    if not thresholds.min_benchmark:
        return Measured(GateStatus.PASSED, rate.value, 0.0, f"{what} {rate}, nothing required")
    found = _compare_rate(what, rate, thresholds.min_benchmark, inputs, thresholds)
    return found._replace(may_pass=lambda _: False)  # the first round contains all of it


def _test_rate(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    rate, required = _results(inputs).adapter.overall.test_rate, thresholds.min_test_rate
    what = "tasks whose hidden tests pass"
    if not required:
        return Measured(GateStatus.PASSED, rate.value, required, f"{what} {rate}, nothing required")
    return _compare_rate(what, rate, required, inputs, thresholds, is_of_tests=True)


def _completed_share(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    results, required = _results(inputs), thresholds.min_completed_share
    fit = results.adapter.overall.num_tasks + results.progress.num_reserve
    total = fit + results.num_too_long
    share = _ratio(fit, total, "the number of tasks")
    message = f"{fit}/{total} tasks fit the limits ({100 * share:.1f} %), the others are too long"
    return Measured(share >= required, share, required, f"{message}, required {100 * required:.1f} %")


def _gain_over_base(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    difference = _results(inputs).parse_difference
    if not difference.num_tasks:
        raise _UnreadableError("base and adapter were not compared on any task")
    required = thresholds.min_gain_over_base
    message = (
        f"parses on {difference.only_second} tasks that the base fails, fails {difference.only_first} that it parses: "
        f"{100 * difference.difference:+.1f} points ({p_text(difference.p_value)}), required {100 * required:+.1f}"
    )
    # If a gain is required, an equal model must not pass by luck.
    is_clear = required <= 0 or difference.p_value < thresholds.max_regression_p
    if not is_clear:
        message += f" and p < {thresholds.max_regression_p:g}"
    is_enough = difference.difference >= required
    verdict = is_enough if is_clear or not is_enough else GateStatus.UNDECIDED
    return Measured(verdict, difference.difference, required, message)


def _test_gain(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    results = _results(inputs)
    difference, allowed = results.test_difference, thresholds.allowed_chance(results.progress)
    message = (
        f"passes the hidden tests of {difference.only_second} tasks that the base fails, fails "
        f"{difference.only_first} that it passes, of {difference.num_tasks}"
    )
    if not thresholds.needs_test_gain:
        return Measured(GateStatus.PASSED, difference.p_better, None, f"{message}; no gain is required")
    if not difference.num_tasks:
        raise _UnreadableError("no task has hidden tests; enable the benchmark (VOX_BENCHMARK=1)")
    chance = difference.p_better
    message += f" ({p_text(chance)}), required p < {allowed:.3g}"
    if chance < allowed or difference.difference <= 0:
        return Measured(chance < allowed, chance, allowed, message)
    message += ": undecided"
    return Measured(GateStatus.UNDECIDED, chance, allowed, message, lambda reserve: reserve.num_tested > 0)


def _regression(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    results = _results(inputs)
    required, champion = thresholds.max_regression_p, results.champion
    if inputs.champion_key is None:
        return Measured(GateStatus.PASSED, None, None, "there is no champion yet")
    if champion is None or champion.key != inputs.champion_key:
        seen = champion.key[:12] if champion else "none"
        raise _UnreadableError(f"compared with champion {seen}, but the champion is {inputs.champion_key[:12]}")
    if not (champion.parse_difference.num_tasks and champion.pass_difference.num_tasks):
        raise _UnreadableError(f"champion {inputs.champion_key[:12]} was not compared on any task")
    worst = _find_worst(champion)
    is_worse = worst.difference < 0 and worst.p_value < required
    message = (
        f"{100 * worst.difference:+.1f} points against the champion on {worst.num_tasks} tasks "
        f"({p_text(worst.p_value)}), a drop counts if p < {required}; {_format_power(worst, required)}"
    )
    return Measured(not is_worse, worst.p_value, required, message)


def _decline(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    earlier, required = _results(inputs).earlier, thresholds.max_decline_p
    if earlier is None:
        return Measured(GateStatus.PASSED, None, None, "no earlier champion completed the same prompts")
    worst = _find_worst(earlier)
    is_worse = worst.difference < 0 and worst.p_value < required
    message = (
        f"{'down' if worst.difference < 0 else 'up'} {abs(100 * worst.difference):.1f} points since the champion of "
        f"{time.strftime('%Y-%m-%d', time.gmtime(earlier.promoted_unix))} ({earlier.key[:12]}), against "
        f"the oldest {earlier.num_compared} of {earlier.num_champions} earlier champions, in "
        f"{worst.num_tasks} comparisons on shared prompts ({p_text(worst.p_value)}), "
        f"a drop counts if p < {required}; {_format_power(worst, required, earlier.num_compared)}"
    )
    return Measured(not is_worse, worst.p_value, required, message)


def _find_worst(champion: ChampionComparison) -> Paired:
    """Return the comparison, of parsing or of passing, whose drop is less likely by chance."""
    differences = (champion.parse_difference, champion.pass_difference)
    return min(differences, key=lambda found: found.p_value if found.difference < 0 else 1.0)


def _format_power(difference: Paired, p_value: float, num_models: int = 1) -> str:
    by_chance = 2 * min(difference.only_first, difference.only_second) / difference.num_tasks
    drop = smallest_drop(difference.num_tasks // num_models, by_chance, p_value)
    if drop is None:
        return "too few tasks to detect a drop"
    return f"a drop of {100 * drop:.1f} points is detected in 80 % of cases if tasks are independent"


def _anti_stub(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    rate = _results(inputs).adapter.overall.stub_rate
    return _compare_rate("stubs", rate, thresholds.max_stub_rate, inputs, thresholds, is_ceiling=True)


def _stop_rate(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    rate = _results(inputs).adapter.overall.stop_rate
    return _compare_rate("completions that end by themselves", rate, thresholds.min_stop_rate, inputs, thresholds)


def _ratio(part: float, whole: float, what: str) -> float:
    if whole <= 0:
        raise _UnreadableError(f"{what} is {whole:g}")
    return part / whole


_NOT_ASKED: Final = Measured(GateStatus.PASSED, None, None, "the adapter was not trained to complete at a cursor")
_INFILL_BASELINES: Final[dict[InfillModel, str]] = {"base": "the base", "ngram": "the n-gram"}


def _infill_parses(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    found, required = _results(inputs).infill, thresholds.min_infill_parse_rate
    if found is None:
        return _NOT_ASKED
    shown, free = found.shown, found.models["adapter"]["all"].parses
    shares = f"{free.short} unconstrained pieces parse in place, {shown.short} holes have a served piece"
    if "served" not in found.models:
        return Measured(not required, 0.0, required, f"no piece parses in place; {shares}")
    rate = found.models["served"]["all"].parses
    message = f"{rate.short} of the served pieces parse in place, required {100 * required:.1f} %; {shares}"
    return Measured((rate.value or 0.0) >= required, rate.value, required, message)


def _infill_gain(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    results = _results(inputs)
    found, allowed = results.infill, thresholds.allowed_chance(results.progress)
    if found is None:
        return _NOT_ASKED
    gains = {
        name: found.exact_difference[model]
        for model, name in _INFILL_BASELINES.items()
        if model in found.exact_difference
    }
    if len(gains) < len(_INFILL_BASELINES):
        message = "no line of a held-out program was evaluated; hold out more files (config/pipeline.yaml)"
        return Measured(not thresholds.needs_infill_gain, None, None, message)
    worst = max(gains, key=lambda name: gains[name].p_better)
    difference = gains[worst]
    message = (
        f"completes {difference.only_second} of {difference.num_tasks} lines exactly that {worst} misses, misses "
        f"{difference.only_first} that it completes ({p_text(difference.p_better)})"
    )
    if not thresholds.needs_infill_gain:
        return Measured(GateStatus.PASSED, difference.p_better, None, f"{message}; no gain is required")
    message += f", required p < {allowed:.3g}"
    return Measured(difference.p_better < allowed, difference.p_better, allowed, message)


def _infill_regression(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    infill = _results(inputs).infill
    if infill is None:
        return _NOT_ASKED
    difference, required = infill.exact_difference.get("champion"), thresholds.max_regression_p
    if difference is None:
        return Measured(GateStatus.PASSED, None, None, "there is no champion yet")
    is_worse = difference.difference < 0 and difference.p_value < required
    message = (
        f"{100 * difference.difference:+.1f} points of exact pieces against the champion in {difference.num_tasks} "
        f"holes ({p_text(difference.p_value)}), a drop counts if p < {required}"
    )
    return Measured(not is_worse, difference.p_value, required, message)


def _supervised_ratio(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    part, whole = _training(inputs).num_supervised_tokens, _training(inputs).num_tokens
    ratio, required = _ratio(part, whole, "result.num_tokens"), thresholds.min_supervised_ratio
    message = f"{part}/{whole} tokens contribute to the loss ({100 * ratio:.1f} %), required {100 * required:.1f} %"
    return Measured(ratio >= required, ratio, required, message)


def _truncation(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    part, whole = _training(inputs).not_shown.too_long, _training(inputs).num_rows
    ratio, required = _ratio(part, whole, "result.num_rows"), thresholds.max_truncation
    share = f"{part}/{whole} rows were too long to train ({100 * ratio:.1f} %)"
    return Measured(ratio <= required, ratio, required, f"{share}, allowed {100 * required:.1f} %")


def _throughput(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    training = _training(inputs)
    device = training.device
    if device not in thresholds.min_tokens_per_second:
        raise _UnreadableError(f"device {device} has no minimum speed; add it to min_tokens_per_second")
    rate = _ratio(training.trained_tokens, training.seconds, "result.seconds")
    required = thresholds.min_tokens_per_second[device]
    return Measured(rate >= required, rate, required, f"trained {rate:.1f} tokens/s on {device}, required {required:g}")


GATES: Final[dict[GateName, Gate]] = {
    GateName.PARSE_RATE: Gate("Parse rate", RESULTS, partial(_on_heldout, GateName.PARSE_RATE)),
    GateName.RESOLVE_RATE: Gate("Resolve rate", RESULTS, partial(_on_heldout, GateName.RESOLVE_RATE)),
    GateName.FALLBACK_PARSE_RATE: Gate("Every served completion is Vox", RESULTS, _fallback_parse_rate),
    GateName.SUITE_SIZE: Gate("The eval suite is large enough", RESULTS, _suite_size, _COUNTS),
    GateName.COVERAGE: Gate("Coverage of constructs", RESULTS, _coverage),
    GateName.BENCHMARK: Gate("Benchmark", RESULTS, _benchmark),
    GateName.TEST_RATE: Gate("Hidden tests", RESULTS, _test_rate),
    GateName.COMPLETED_SHARE: Gate("Most of the eval suite was evaluated", RESULTS, _completed_share),
    GateName.GAIN_OVER_BASE: Gate("Better than the base", RESULTS, _gain_over_base, _POINTS),
    GateName.TEST_GAIN: Gate("Passes more hidden tests than the base", RESULTS, _test_gain, _GAINS),
    GateName.REGRESSION: Gate("No worse than the champion", RESULTS, _regression, _DROPS),
    GateName.DECLINE: Gate("No slow decline", RESULTS, _decline, _DROPS),
    GateName.ANTI_STUB: Gate("Few stubs", RESULTS, _anti_stub),
    GateName.STOP_RATE: Gate("Completions end by themselves", RESULTS, _stop_rate),
    GateName.INFILL_PARSES: Gate("Every piece served at a cursor parses in place", RESULTS, _infill_parses),
    GateName.INFILL_GAIN: Gate("Completes more lines than base and n-gram", RESULTS, _infill_gain, _GAINS),
    GateName.INFILL_REGRESSION: Gate("Completes no fewer holes than the champion", RESULTS, _infill_regression, _DROPS),
    GateName.SUPERVISED_RATIO: Gate("Enough tokens contribute to the loss", MANIFEST, _supervised_ratio),
    GateName.TRUNCATION: Gate("Few rows too long", MANIFEST, _truncation),
    GateName.THROUGHPUT: Gate("Training speed", MANIFEST, _throughput, _SPEEDS),
}
"""Gates in the order of the receipt."""
