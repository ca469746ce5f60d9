"""Whether a model is good enough to be promoted: a pure function from documents to a verdict.

What is missing or malformed fails by name; nothing is passed over.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import floor, log10, pi
from typing import Any, Final, Self

from pydantic import Field, model_validator

from mens_pipeline.evaluation.results import RESULTS, EvalResults, Progress
from mens_pipeline.evaluation.statistics import Paired, Rate, p_text, smallest_drop
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.models.adapter import MANIFEST
from mens_pipeline.promotion.policy import GateName, Thresholds
from mens_pipeline.storage.validation import Strict


@dataclass(frozen=True, slots=True)
class GateInputs:
    """Inputs of a verdict.

    Attributes:
        results: The figures; None when the document is missing or malformed.
        results_problem: Then, why.
        manifest: The training manifest; None when it is missing or malformed.
        manifest_problem: Then, why.
        champion_key: The adapter that is in use now; None for none.
        is_benchmark_asked: Whether the benchmark has a say (`VOX_BENCHMARK`).
    """

    results: EvalResults | None
    results_problem: str
    manifest: dict[str, Any] | None
    manifest_problem: str
    champion_key: str | None
    is_benchmark_asked: bool


class GateStatus(StrEnum):
    """Result of one gate."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    """What was asked cannot tell; more of the exam may."""


class GateOutcome(Strict):
    """One gate of a verdict."""

    name: GateName
    status: GateStatus
    passed: bool = Field(description="Whether `status` is `passed`; what is undecided does not promote.")
    block: bool = Field(description="Whether anything but `passed` keeps the model from being promoted.")
    measured: float | None = Field(description="Null when it could not be measured, or is not asked for.")
    required: float | None = Field(description="Null when nothing is required.")
    message: str
    source: str = Field(description="The document it was read from.")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.passed is not (self.status is GateStatus.PASSED):
            raise ValueError(f"{self.name}: passed is {self.passed}, the status {self.status}")
        return self


class _UnreadableError(Exception):
    """A figure could not be had; the message says why."""


def decide(inputs: GateInputs, thresholds: Thresholds) -> tuple[GateOutcome, ...]:
    """Return the outcome of every gate, in their order: what was measured, and what is required."""
    outcomes = []
    for name, (source, measure) in _GATES.items():
        try:
            verdict, measured, required, message = measure(inputs, thresholds)
        except _UnreadableError as error:
            verdict, measured, required, message = False, None, None, f"{source}: {error}"
        status = verdict if isinstance(verdict, GateStatus) else _plain(is_passed=verdict)
        figures = {"measured": measured, "required": required, "message": message, "source": source}
        is_passed, block = status is GateStatus.PASSED, name not in thresholds.warn_only
        outcomes.append(GateOutcome(name=name, status=status, passed=is_passed, block=block, **figures))
    return tuple(outcomes)


def overall_status(outcomes: tuple[GateOutcome, ...]) -> GateStatus:
    """Return the verdict of all blocking gates: failed when one of them is, else undecided when one is, else passed."""
    found = {outcome.status for outcome in outcomes if outcome.block}
    return next((status for status in (GateStatus.FAILED, GateStatus.UNDECIDED) if status in found), GateStatus.PASSED)


def allowed_chance(thresholds: Thresholds, progress: Progress) -> float:
    """Compute the chance of a false promotion that one round of one try may take.

    All rounds of all tries on an exam, up to the next promotion, take `1 - confidence` together: the k-th try takes
    6 / (pi k)^2 of it, shared by its planned rounds; the r-th of R rounds takes a part in proportion to r^3, so that a
    model is settled early only where that is clear, and hardly any confidence is lost to the first look. By the union
    bound that holds however alike tries are. A promotion refills the budget, or a good model could not be confirmed
    night after night.

    Source:
        Alpha spending over looks, Lan and DeMets 1983, little of it at first as O'Brien and Fleming 1979 do; over
        tries, LORD of Javanmard and Montanari 2018.
    """
    of_try = (1 - thresholds.confidence) * 6 / (pi * progress.attempt) ** 2
    return of_try * progress.round**3 / sum(number**3 for number in range(1, progress.num_rounds + 1))


_Measured = tuple[bool | GateStatus, float | None, float | None, str]


def _results(inputs: GateInputs) -> EvalResults:
    if inputs.results is None:
        raise _UnreadableError(inputs.results_problem)
    return inputs.results


def _plain(*, is_passed: bool) -> GateStatus:
    return GateStatus.PASSED if is_passed else GateStatus.FAILED


def _at_least(what: str, rate: Rate, lowest: float, inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    if rate.value is None:
        raise _UnreadableError(f"{what}: nothing was measured")
    status, reason = _judged(rate.chance_of_at_least(lowest), inputs, thresholds)
    return status, rate.value, lowest, f"{what} {rate}, floor {100 * lowest:.1f} %: {reason}"


def _at_most(what: str, rate: Rate, highest: float, inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    if rate.value is None:
        raise _UnreadableError(f"{what}: nothing was measured")
    status, reason = _judged(1 - rate.chance_of_at_least(highest), inputs, thresholds)
    return status, rate.value, highest, f"{what} {rate}, ceiling {100 * highest:.1f} %: {reason}"


def _judged(probability: float, inputs: GateInputs, thresholds: Thresholds) -> tuple[GateStatus, str]:
    """Decide by the probability that the true rate is on the right side of its threshold, and say so in words."""
    allowed = allowed_chance(thresholds, _results(inputs).progress)
    places = max(3, 1 - floor(log10(allowed)))  # so that a late try does not read as if certainty were required
    compared = f"(probability {probability:.{places}f} of {1 - allowed:.{places}f} required)"
    if probability >= 1 - allowed:
        return GateStatus.PASSED, f"passes {compared}"
    # Refusing is what happens anyway, so it is not paid for.
    if probability <= 1 - thresholds.confidence:
        return GateStatus.FAILED, f"fails (probability {probability:.3f})"
    return GateStatus.UNDECIDED, f"cannot tell yet {compared}"


def _on_heldout(name: GateName, inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    """Judge a rate by what must be measured, and by what the true rate must surely not be below."""
    scores = _results(inputs).adapter.suites.get(Suite.HELDOUT)
    if scores is None:
        raise _UnreadableError("there is no held-out task")
    rate: Rate = getattr(scores, name)
    required, surely = thresholds.on_heldout(name)
    what = f"{name.replace('_', ' ')} on held-out prompts"
    status, _, _, message = _at_least(what, rate, surely, inputs, thresholds)
    assert rate.value is not None, "measured, or the line above would have raised"  # noqa: S101 - our own impossibility
    if rate.value >= required:
        return status, rate.value, required, message
    probability = rate.chance_of_at_least(required)
    is_lost = status is GateStatus.FAILED or probability <= 1 - thresholds.confidence
    short = (
        f"{message}; {100 * required:.1f} % must be measured (probability {probability:.3f} that it is the true rate)"
    )
    return GateStatus.FAILED if is_lost else GateStatus.UNDECIDED, rate.value, required, short


def _fallback_parse_rate(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    fallback, required = _results(inputs).fallback, thresholds.min_fallback_parse_rate
    if not required:
        return True, None, required, "parse rate with the fallback: nothing required"
    if fallback is None:
        raise _UnreadableError("answers have no fallback; set syntax: fallback in config/evaluation.yaml")
    rate = fallback.scores.overall.parse_rate
    share = _ratio(rate.numerator, rate.denominator, "the number of answers")
    message = f"parse rate with the fallback {rate.short}, required {100 * required:.1f} %"
    return share >= required, share, required, f"{message}; {fallback.num_constrained} written once more"


def _exam_size(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    scores = _results(inputs).adapter.suites.get(Suite.HELDOUT)
    num_tasks, num_files = (scores.num_tasks, scores.parse_rate.num_units) if scores is not None else (0, 0)
    least = (thresholds.min_heldout_tasks, thresholds.min_heldout_files)
    is_enough = num_tasks >= least[0] and num_files >= least[1]
    message = f"{num_tasks} held-out prompts from {num_files} files, required {least[0]} from {least[1]}"
    if not is_enough:
        message += "; raise split.min_heldout_tasks or split.max_heldout_share in config/pipeline.yaml, or add programs"
    return is_enough, num_tasks, least[0], message


def _coverage(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    coverage = _results(inputs).adapter.overall.coverage
    present, total = len(coverage.present), len(coverage.present) + len(coverage.missing)
    required = thresholds.min_coverage
    message = f"accepted answers show {present}/{total} constructs, required {100 * required:.1f} %"
    return coverage.share >= required, coverage.share, required, message


def _benchmark(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    if not inputs.is_benchmark_asked:
        return True, None, None, "the benchmark is not asked for (VOX_BENCHMARK)"
    scores = _results(inputs).adapter.suites.get(Suite.BENCHMARK)
    if scores is None:
        raise _UnreadableError("the benchmark was not run")
    if not thresholds.min_benchmark:
        return True, scores.pass_at_1.value, 0.0, f"benchmark pass@1 {scores.pass_at_1}, nothing required"
    return _at_least("benchmark pass@1", scores.pass_at_1, thresholds.min_benchmark, inputs, thresholds)


def _test_rate(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    rate, required = _results(inputs).adapter.overall.test_rate, thresholds.min_test_rate
    if not required:
        return True, rate.value, required, f"tasks whose hidden tests pass {rate}, nothing required"
    return _at_least("tasks whose hidden tests pass", rate, required, inputs, thresholds)


def _asked_share(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    results, required = _results(inputs), thresholds.min_asked_share
    fit = results.adapter.overall.num_tasks + results.progress.num_reserve
    total = fit + results.num_too_long
    share = _ratio(fit, total, "the number of tasks")
    message = f"{fit}/{total} tasks can be asked ({100 * share:.1f} %), the others are too long to be answered"
    return share >= required, share, required, f"{message}, required {100 * required:.1f} %"


def _gain_over_base(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    difference = _results(inputs).parse_difference
    if not difference.num_tasks:
        raise _UnreadableError("base and adapter were compared on no task")
    required = thresholds.min_gain_over_base
    message = (
        f"parses {difference.only_second} answers that the base does not, loses {difference.only_first}: "
        f"{100 * difference.difference:+.1f} points ({p_text(difference.p_value)}), required {100 * required:+.1f}"
    )
    # Where a gain is asked for, two equal models must not pass by luck.
    is_clear = required <= 0 or difference.p_value < thresholds.max_regression_p
    if not is_clear:
        message += f" and p < {thresholds.max_regression_p:g}"
    is_enough = difference.difference >= required
    status = _plain(is_passed=is_enough) if is_clear or not is_enough else GateStatus.UNDECIDED
    return status, difference.difference, required, message


def _test_gain(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    results = _results(inputs)
    difference, allowed = results.test_difference, allowed_chance(thresholds, results.progress)
    message = (
        f"passes the hidden tests of {difference.only_second} tasks that the base does not, loses "
        f"{difference.only_first}, of {difference.num_tasks}"
    )
    if not thresholds.needs_test_gain:
        return True, difference.difference, None, f"{message}; no gain is required"
    if not difference.num_tasks:
        raise _UnreadableError("no task has hidden tests; let the benchmark have a say (VOX_BENCHMARK=1)")
    chance = difference.p_better
    message += f" ({p_text(chance)}), required p < {allowed:.3g}"
    if chance < allowed:
        return GateStatus.PASSED, difference.difference, 0.0, message
    status = GateStatus.UNDECIDED if difference.difference > 0 else GateStatus.FAILED
    return status, difference.difference, 0.0, f"{message}{': cannot tell yet' if difference.difference > 0 else ''}"


def _regression(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    results = _results(inputs)
    required = thresholds.max_regression_p
    if inputs.champion_key is None:
        return True, None, None, "there is no champion yet"
    if results.champion is None or results.champion.key != inputs.champion_key:
        seen = results.champion.key[:12] if results.champion else "none"
        raise _UnreadableError(f"compares with champion {seen}, the champion is {inputs.champion_key[:12]}")
    if not (results.champion.parse_difference.num_tasks and results.champion.pass_difference.num_tasks):
        raise _UnreadableError(f"champion {inputs.champion_key[:12]} was compared on no task")
    worst = min(
        (results.champion.parse_difference, results.champion.pass_difference),
        key=lambda difference: difference.p_value if difference.difference < 0 else 1.0,
    )
    is_worse = worst.difference < 0 and worst.p_value < required
    message = (
        f"{100 * worst.difference:+.1f} points against the champion on {worst.num_tasks} tasks "
        f"({p_text(worst.p_value)}), a drop counts below p = {required}; {_visible(worst, required)}"
    )
    return not is_worse, worst.p_value, required, message


def _visible(difference: Paired, p_value: float) -> str:
    """Format the smallest drop that the gate detects; a smaller one may pass."""
    by_chance = 2 * min(difference.only_first, difference.only_second) / difference.num_tasks
    drop = smallest_drop(difference.num_tasks, by_chance, p_value)
    return (
        "no drop can be seen on so few"
        if drop is None
        else f"one of {100 * drop:.1f} points is seen in 80 % of cases where tasks are independent"
    )


def _anti_stub(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    return _at_most("stubs", _results(inputs).adapter.overall.stub_rate, thresholds.max_stub_rate, inputs, thresholds)


def _stop_rate(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    rate = _results(inputs).adapter.overall.stop_rate
    return _at_least("answers that end by themselves", rate, thresholds.min_stop_rate, inputs, thresholds)


def _result_field(inputs: GateInputs, *path: str) -> Any:
    """Return the value at a path of keys in the training manifest."""
    value: Any = inputs.manifest
    if value is None:
        raise _UnreadableError(inputs.manifest_problem)
    for key in path:
        if not isinstance(value, dict) or key not in value:
            raise _UnreadableError(f"no {'.'.join(path)}")
        value = value[key]
    return value


def _number(inputs: GateInputs, *path: str) -> float:
    value = _result_field(inputs, *path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnreadableError(f"{'.'.join(path)} is {value!r}, no number")
    # JSON as Python reads it has NaN, Infinity, and whole numbers beyond any float.
    if not 0 <= value <= sys.float_info.max:
        raise _UnreadableError(f"{'.'.join(path)} is {str(value)[:20]}, no amount")
    return float(value)


def _ratio(part: float, whole: float, what: str) -> float:
    if whole <= 0:
        raise _UnreadableError(f"{what} is {whole:g}")
    return part / whole


def _supervised_ratio(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    part, whole = _number(inputs, "result", "num_supervised_tokens"), _number(inputs, "result", "num_tokens")
    ratio, required = _ratio(part, whole, "result.num_tokens"), thresholds.min_supervised_ratio
    message = f"{part:.0f}/{whole:.0f} tokens carry the loss ({100 * ratio:.1f} %), required {100 * required:.1f} %"
    return ratio >= required, ratio, required, message


def _truncation(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    part, whole = _number(inputs, "result", "not_shown", "too_long"), _number(inputs, "result", "num_rows")
    ratio, required = _ratio(part, whole, "result.num_rows"), thresholds.max_truncation
    share = f"{part:.0f}/{whole:.0f} rows were too long to train ({100 * ratio:.1f} %)"
    return ratio <= required, ratio, required, f"{share}, allowed {100 * required:.1f} %"


def _throughput(inputs: GateInputs, thresholds: Thresholds) -> _Measured:
    tokens, seconds = _number(inputs, "result", "trained_tokens"), _number(inputs, "result", "seconds")
    device = str(_result_field(inputs, "result", "device"))
    if device not in thresholds.min_tokens_per_second:
        raise _UnreadableError(f"no speed is required of device {device}; add it to min_tokens_per_second")
    rate, required = _ratio(tokens, seconds, "result.seconds"), thresholds.min_tokens_per_second[device]
    return rate >= required, rate, required, f"trained {rate:.1f} tokens/s on {device}, required {required:g}"


_GATES: Final[dict[GateName, tuple[str, Callable[[GateInputs, Thresholds], _Measured]]]] = {
    GateName.PARSE_RATE: (RESULTS, partial(_on_heldout, GateName.PARSE_RATE)),
    GateName.RESOLVE_RATE: (RESULTS, partial(_on_heldout, GateName.RESOLVE_RATE)),
    GateName.FALLBACK_PARSE_RATE: (RESULTS, _fallback_parse_rate),
    GateName.EXAM_SIZE: (RESULTS, _exam_size),
    GateName.COVERAGE: (RESULTS, _coverage),
    GateName.BENCHMARK: (RESULTS, _benchmark),
    GateName.TEST_RATE: (RESULTS, _test_rate),
    GateName.ASKED_SHARE: (RESULTS, _asked_share),
    GateName.GAIN_OVER_BASE: (RESULTS, _gain_over_base),
    GateName.TEST_GAIN: (RESULTS, _test_gain),
    GateName.REGRESSION: (RESULTS, _regression),
    GateName.ANTI_STUB: (RESULTS, _anti_stub),
    GateName.STOP_RATE: (RESULTS, _stop_rate),
    GateName.SUPERVISED_RATIO: (MANIFEST, _supervised_ratio),
    GateName.TRUNCATION: (MANIFEST, _truncation),
    GateName.THROUGHPUT: (MANIFEST, _throughput),
}
"""Gate -> the document it reads, and how it judges."""
