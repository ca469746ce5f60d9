"""Simulate how often the parse-rate gate refuses a good model and promotes a bad one; prints docs/gate.md.

The gate that is simulated is the real one: its policy, its rounds, its statistics and its ledger of tries.
"""

import sys
from collections import Counter
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Final

from mens_pipeline.evaluation.results import EvalResults, Progress
from mens_pipeline.evaluation.scores import Coverage
from mens_pipeline.evaluation.statistics import compare_paired, mean_rate, rate_of
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.promotion.gate import GateInputs, decide
from mens_pipeline.promotion.policy import GateName, GateStatus, Thresholds, load_gate_policy
from mens_pipeline.promotion.rounds import Demands, rounds_of, undecided_gates
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.evaluation.scored import evaluation, task, with_overall, with_suite

_SIZES: Final = (*[1] * 9, *[2] * 5, *[3] * 2, *[4] * 5, 5, 7, 7, 8, 10, 10, 10, 11, 11, 13, 15, 15)
"""Programs to ask for in the held-out files of the seed data."""

_LIKENESS: Final = 0.13
"""The correlation of two answers to prompts of one file: a design effect of 1.9 at 112 prompts from 21 files."""

_RATES: Final = (0.50, 0.55, 0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95)
_NUM_NIGHTS: Final = 30
_NUM_FIRST: Final = 1_000
_NUM_SERIES: Final = 200
_POINT: Final = 0.70
"""The rule before: a rate as it was measured, of the prompts of the first round."""

_GAIN: Final = compare_paired([False] * 20, [True] * 20)
_GOOD: Final = with_overall(
    evaluation().results,
    coverage=Coverage(present=tuple("abcdefghi"), missing=("j",), share=0.9),
    stub_rate=rate_of([False] * 100),
    stop_rate=rate_of([True] * 100),
).model_copy(update={"parse_difference": _GAIN, "test_difference": _GAIN})
"""An adapter that passes every gate but, perhaps, that of the parse rate."""


@dataclass(frozen=True)
class _Exam:
    rounds: tuple[tuple[Task, ...], ...]
    demands: Demands


@dataclass(frozen=True)
class _Night:
    status: GateStatus
    num_asked: int
    is_point_passed: bool


def _night(eval_suite: _Exam, chances: dict[str, float], attempt: int, random: Random) -> _Night:
    tasks: list[Task] = []
    shares: list[float] = []
    is_point_passed, results = False, _GOOD
    for number, part in enumerate(eval_suite.rounds, start=1):
        tasks += part
        shares += [float(random.random() < chances[asked.file]) for asked in part]
        if number == 1:
            is_point_passed = sum(shares) / len(shares) >= _POINT
        reserve = [asked for later in eval_suite.rounds[number:] for asked in later]
        progress = Progress(attempt=attempt, round=number, num_rounds=len(eval_suite.rounds), num_reserve=len(reserve))
        rate = mean_rate(shares, [asked.file for asked in tasks])
        results = with_suite(_GOOD, Suite.HELDOUT, parse_rate=rate, num_tasks=len(tasks))
        results = results.model_copy(update={"progress": progress})
        if not undecided_gates(results, eval_suite.demands, reserve):
            break
    return _Night(_status(results, eval_suite.demands.thresholds), len(tasks), is_point_passed)


def _status(results: EvalResults, thresholds: Thresholds) -> GateStatus:
    outcomes = decide(GateInputs(results, "", None, "", None, is_benchmark_asked=True), thresholds)
    return next(outcome.status for outcome in outcomes if outcome.name is GateName.PARSE_RATE)


def _chances(rate: float, random: Random) -> dict[str, float]:
    weight = (1 - _LIKENESS) / _LIKENESS
    return {f"{n}.vox": random.betavariate(rate * weight, (1 - rate) * weight) for n in range(len(_SIZES))}


def _row(eval_suite: _Exam, rate: float) -> str:
    random = Random(f"{rate}")  # noqa: S311 - no secret
    firsts = [_night(eval_suite, _chances(rate, random), 1, random) for _ in range(_NUM_FIRST)]
    status = Counter(night.status for night in firsts)
    details = [status[word] / _NUM_FIRST for word in GateStatus]
    before = sum(night.is_point_passed for night in firsts) / _NUM_FIRST
    asked = sum(night.num_asked for night in firsts) / _NUM_FIRST
    num_any = num_promoted = num_any_before = 0
    for _ in range(_NUM_SERIES):
        chances, attempt, promoted, is_any_before = _chances(rate, random), 1, 0, False
        for _ in range(_NUM_NIGHTS):
            night = _night(eval_suite, chances, attempt, random)
            is_any_before |= night.is_point_passed
            is_promoted = night.status is GateStatus.PASSED
            promoted += is_promoted
            attempt = 1 if is_promoted else attempt + 1
        num_any += promoted > 0
        num_any_before += is_any_before
        num_promoted += promoted
    series = (num_any_before / _NUM_SERIES, num_any / _NUM_SERIES, num_promoted / _NUM_SERIES / _NUM_NIGHTS)
    cells = [f"{100 * rate:.0f} %", *map(_percent, (before, *details)), f"{asked:.0f}", *map(_percent, series)]
    return f"| {' | '.join(cells)} |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> None:
    """Print docs/gate.md."""
    policy = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml")
    thresholds = policy.thresholds("ci").model_copy(update={"needs_test_gain": False})  # a gate of its own
    tasks = [task(100 * n + place, file=f"{n}.vox") for n, size in enumerate(_SIZES) for place in range(size)]
    eval_suite = _Exam(rounds_of(tasks, thresholds), Demands(thresholds, is_benchmark_asked=True))
    sizes = [(len(part), len({asked.file for asked in part})) for part in eval_suite.rounds]
    started = perf_counter()
    rows = [_row(eval_suite, rate) for rate in _RATES]
    print(
        _TEXT.format(
            floor=f"{100 * thresholds.parse_rate_floor:.0f} %",
            measured=f"{100 * thresholds.min_parse_rate:.0f} %",
            error=f"{100 * (1 - thresholds.confidence):.0f} %",
            first=f"{sizes[0][0]} prompts from {sizes[0][1]} files",
            later=", ".join(f"{number} more from {files}" for number, files in sizes[1:]),
            nights=_NUM_NIGHTS,
            num_first=f"{_NUM_FIRST:,}",
            num_series=_NUM_SERIES,
            rows="\n".join(rows),
        )
    )
    print(f"{perf_counter() - started:.0f} s", file=sys.stderr)


_TEXT: Final = """\
# What the gate gets wrong

A gate is a question about an adapter that has to be answered with yes before the adapter is promoted: does enough
of what it writes parse, is it better than the base, is it no worse than the adapter in use? A policy in
`config/gates.yaml` says what each gate requires. A gate passes, fails, or cannot tell yet; only an adapter that
passes every blocking gate is promoted.

A gate asks a sample of prompts, so it can be wrong: it may pass a bad adapter by luck, or not pass a good one. This
page says how often. Its figures come from `python -m mens_pipeline_tests.bench.gate`, which prints it; change
nothing by hand.

## What is simulated

The gate of the parse rate in policy `ci` is simulated. It passes an adapter when two things hold: at least
{measured} of the completions parse, and the true rate is surely at least {floor}. The prompts are those of the
seed data: {first} at first, and {later} where the first ones cannot tell.

Some source files are harder than others, so completions for one file tend to fail together: two of them correlate
by 0.13, as measured. So 112 prompts from 21 files say as much as 59 independent ones, a design effect of 1.9.

The columns, for adapters whose true parse rate is that of the first column:

- **before**: how often the rule that was used until now passes an adapter. That rule looks at the first round alone
  and wants a measured rate of at least {measured}.
- **passes**, **fails**, **cannot tell**: how often the gate says so of a first adapter, in {num_first} simulated
  evaluations.
- **asked**: prompts that it asks on average.
- **before, {nights}**: in {num_series} series of {nights} nights, how many promote at least once by the rule
  before. Every night brings a new adapter of the same true rate, on the same prompts.
- **once in {nights}**: the same by the gate. It demands more with each try, and begins to count again after a
  promotion.
- **nights of {nights}**: how many of all those nights promote.

| true rate | before | passes | fails | cannot tell | asked | before, {nights} | once in {nights} | nights of {nights} |
|---|---|---|---|---|---|---|---|---|
{rows}

## What that says

- A bad adapter is hardly ever promoted. One below the floor gets through at most once in twenty series of {nights}
  nights, which is {error} over all tries and rounds together. The columns "before" show how often it did under the
  old rule.
- A good adapter is not refused. Where it does not pass, the gate mostly cannot tell, and the next adapter may pass.
- A little above the floor the prompts are too few to be certain, and the gate says so. More held-out files help:
  see `split.min_heldout_tasks` and `first_heldout_tasks`.
"""


if __name__ == "__main__":
    main()
