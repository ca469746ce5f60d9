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
from mens_pipeline.evaluation.statistics import mean_rate, paired, rate_of
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.promotion.gate import GateInputs, GateStatus, decide
from mens_pipeline.promotion.policy import GateName, Thresholds, load_gate_policy
from mens_pipeline.promotion.rounds import Demands, rounds_of, undecided_gates
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.evaluation.judged import evaluation, task, with_overall, with_suite

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

_GAIN: Final = paired([False] * 20, [True] * 20)
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
    """One simulated evaluation: its status, the prompts that were asked, and the verdict of the earlier rule."""

    status: GateStatus
    num_asked: int
    is_point_passed: bool


def _night(exam: _Exam, chances: dict[str, float], attempt: int, random: Random) -> _Night:
    """Evaluate an adapter whose answer to a request of a file is Vox with the chance of that file."""
    tasks: list[Task] = []
    shares: list[float] = []
    is_point_passed, results = False, _GOOD
    for number, part in enumerate(exam.rounds, start=1):
        tasks += part
        shares += [float(random.random() < chances[asked.file]) for asked in part]
        if number == 1:
            is_point_passed = sum(shares) / len(shares) >= _POINT
        reserve = [asked for later in exam.rounds[number:] for asked in later]
        progress = Progress(attempt=attempt, round=number, num_rounds=len(exam.rounds), num_reserve=len(reserve))
        rate = mean_rate(shares, [asked.file for asked in tasks])
        results = with_suite(_GOOD, Suite.HELDOUT, parse_rate=rate, num_tasks=len(tasks))
        results = results.model_copy(update={"progress": progress})
        if not undecided_gates(results, exam.demands, reserve):
            break
    return _Night(_status(results, exam.demands.thresholds), len(tasks), is_point_passed)


def _status(results: EvalResults, thresholds: Thresholds) -> GateStatus:
    outcomes = decide(GateInputs(results, "", None, "", None, is_benchmark_asked=True), thresholds)
    return next(outcome.status for outcome in outcomes if outcome.name is GateName.PARSE_RATE)


def _chances(rate: float, random: Random) -> dict[str, float]:
    """How hard each file of an exam is, in a workspace where the whole is done at some rate."""
    weight = (1 - _LIKENESS) / _LIKENESS
    return {f"{n}.vox": random.betavariate(rate * weight, (1 - rate) * weight) for n in range(len(_SIZES))}


def _row(exam: _Exam, rate: float) -> str:
    random = Random(f"{rate}")  # noqa: S311 - no secret
    firsts = [_night(exam, _chances(rate, random), 1, random) for _ in range(_NUM_FIRST)]
    status = Counter(night.status for night in firsts)
    told = [status[word] / _NUM_FIRST for word in GateStatus]
    before = sum(night.is_point_passed for night in firsts) / _NUM_FIRST
    asked = sum(night.num_asked for night in firsts) / _NUM_FIRST
    num_any = num_promoted = num_any_before = 0
    for _ in range(_NUM_SERIES):
        chances, attempt, promoted, is_any_before = _chances(rate, random), 1, 0, False
        for _ in range(_NUM_NIGHTS):
            night = _night(exam, chances, attempt, random)
            is_any_before |= night.is_point_passed
            is_promoted = night.status is GateStatus.PASSED
            promoted += is_promoted
            attempt = 1 if is_promoted else attempt + 1
        num_any += promoted > 0
        num_any_before += is_any_before
        num_promoted += promoted
    series = (num_any_before / _NUM_SERIES, num_any / _NUM_SERIES, num_promoted / _NUM_SERIES / _NUM_NIGHTS)
    cells = [f"{100 * rate:.0f} %", *map(_percent, (before, *told)), f"{asked:.0f}", *map(_percent, series)]
    return f"| {' | '.join(cells)} |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> None:
    """Print docs/gate.md."""
    policy = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml")
    thresholds = policy.thresholds("ci").model_copy(update={"needs_test_gain": False})  # a gate of its own
    tasks = [task(100 * n + place, file=f"{n}.vox") for n, size in enumerate(_SIZES) for place in range(size)]
    exam = _Exam(rounds_of(tasks, thresholds), Demands(thresholds, is_benchmark_asked=True))
    sizes = [(len(part), len({asked.file for asked in part})) for part in exam.rounds]
    started = perf_counter()
    rows = [_row(exam, rate) for rate in _RATES]
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

Every figure here comes from `python -m mens_pipeline_tests.bench.gate`, which prints this page; change nothing by hand.

The gate of the parse rate of policy `ci` in simulation: {measured} must be measured, and the true rate must surely be
at least {floor}. The exam is that of the seed data:
{first} at first, {later} where that cannot tell. Files differ in how hard they are, so that two answers to
prompts of one file correlate by 0.13: of 112 prompts from 21 files that is a design effect of 1.9, as measured.

- *One night* (columns 2 to 6): {num_first} simulated evaluations of a first adapter. *Before* is the rule that was used
  until now: the measured rate of the first round is at least {measured}.
- *{nights} nights* (the rest): {num_series} series, a new adapter of the same true rate every night on the same exam,
  the count of tries beginning anew after each promotion; how many promote at least once, and how many nights do.

| true rate | before | passes | fails | cannot tell | asked | before, {nights} | once in {nights} | nights of {nights} |
|---|---|---|---|---|---|---|---|---|
{rows}

- A model below the floor is promoted at most once in twenty series of {nights} nights ({error}, all tries and rounds
  together); the columns "before" say how often the rule before did.
- A good model is not refused: what does not pass is mostly "cannot tell", and the next adapter may.
- Somewhat above the floor the exam cannot tell for certain, and says so: more held-out files would
  (`split.min_heldout_tasks` and `first_heldout_tasks`).
"""


if __name__ == "__main__":
    main()
