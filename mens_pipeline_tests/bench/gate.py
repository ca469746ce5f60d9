"""Simulate how often the parse-rate gate promotes a bad model; prints the table of docs/evaluation.md.

The simulated gate is the real one, with its policy, rounds, statistics and ledger of tries.
"""

import sys
from collections import Counter
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Final

from mens_pipeline.evaluation.results import EvalResults
from mens_pipeline.evaluation.scores import Coverage
from mens_pipeline.evaluation.statistics import compare_paired, mean_rate, rate_of
from mens_pipeline.evaluation.suite import divide_into_rounds
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.promotion.gate import GateInputs, decide
from mens_pipeline.promotion.policy import GateName, GateStatus, Thresholds, load_gate_policy
from mens_pipeline.promotion.referee import find_undecided
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.evaluation.scored import PROGRESS, evaluation, task, with_overall, with_suite

_SIZES: Final = (*[1] * 9, *[2] * 5, *[3] * 2, *[4] * 5, 5, 7, 7, 8, 10, 10, 10, 11, 11, 13, 15, 15)
"""Number of prompts in each held-out file of the seed data."""

_LIKENESS: Final = 0.13
"""Correlation of two completions for prompts of one file: a design effect of 1.9 at 112 prompts from 21 files."""

_RATES: Final = (0.50, 0.55, 0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95)
_NUM_NIGHTS: Final = 30
_NUM_FIRST: Final = 1_000
_NUM_SERIES: Final = 200

_GAIN: Final = compare_paired([False] * 20, [True] * 20)
_GOOD: Final = with_overall(
    evaluation().results,
    coverage=Coverage(present=tuple("abcdefghi"), missing=("j",), share=0.9),
    stub_rate=rate_of([False] * 100),
    stop_rate=rate_of([True] * 100),
).model_copy(update={"parse_difference": _GAIN, "test_difference": _GAIN})
"""Results that pass every gate except, depending on the simulation, the parse-rate gate."""


@dataclass(frozen=True)
class _Suite:
    rounds: tuple[tuple[Task, ...], ...]
    thresholds: Thresholds


@dataclass(frozen=True)
class _Night:
    status: GateStatus
    num_asked: int


def _draw_night(eval_suite: _Suite, chances: dict[str, float], attempt: int, random: Random) -> _Night:
    tasks: list[Task] = []
    shares: list[float] = []
    results = _GOOD
    for number, part in enumerate(eval_suite.rounds, start=1):
        tasks += part
        shares += [float(random.random() < chances[asked.file]) for asked in part]
        reserve = [asked for later in eval_suite.rounds[number:] for asked in later]
        so_far = {"attempt": attempt, "round": number, "num_reserve": len(reserve)}
        progress = PROGRESS.model_copy(update={**so_far, "num_rounds": len(eval_suite.rounds)})
        rate = mean_rate(shares, [asked.file for asked in tasks])
        results = with_suite(_GOOD, Suite.HELDOUT, parse_rate=rate, num_tasks=len(tasks))
        results = results.model_copy(update={"progress": progress})
        if not find_undecided(results, eval_suite.thresholds, reserve, is_benchmark_asked=True):
            break
    return _Night(_find_status(results, eval_suite.thresholds), len(tasks))


def _find_status(results: EvalResults, thresholds: Thresholds) -> GateStatus:
    outcomes = decide(GateInputs(results, "", None, "", None, is_benchmark_asked=True), thresholds)
    return next(outcome.status for outcome in outcomes if outcome.name is GateName.PARSE_RATE)


def _draw_chances(rate: float, random: Random) -> dict[str, float]:
    weight = (1 - _LIKENESS) / _LIKENESS
    return {f"{n}.vox": random.betavariate(rate * weight, (1 - rate) * weight) for n in range(len(_SIZES))}


def _format_row(eval_suite: _Suite, rate: float) -> str:
    random = Random(f"{rate}")  # noqa: S311 - no secret
    firsts = [_draw_night(eval_suite, _draw_chances(rate, random), 1, random) for _ in range(_NUM_FIRST)]
    status = Counter(night.status for night in firsts)
    details = [status[word] / _NUM_FIRST for word in GateStatus]
    asked = sum(night.num_asked for night in firsts) / _NUM_FIRST
    num_any = num_promoted = 0
    for _ in range(_NUM_SERIES):
        chances, attempt, promoted = _draw_chances(rate, random), 1, 0
        for _ in range(_NUM_NIGHTS):
            night = _draw_night(eval_suite, chances, attempt, random)
            is_promoted = night.status is GateStatus.PASSED
            promoted += is_promoted
            attempt = 1 if is_promoted else attempt + 1
        num_any += promoted > 0
        num_promoted += promoted
    series = (num_any / _NUM_SERIES, num_promoted / _NUM_SERIES / _NUM_NIGHTS)
    cells = [f"{100 * rate:.0f} %", *map(_format_percent, details), f"{asked:.0f}", *map(_format_percent, series)]
    return f"| {' | '.join(cells)} |"


def _format_percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> None:
    policy = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml")
    other_gates = {"needs_test_gain": False, "min_fallback_parse_rate": 0.0}
    thresholds = policy.thresholds("ci").model_copy(update=other_gates)
    tasks = [task(100 * n + place, file=f"{n}.vox") for n, size in enumerate(_SIZES) for place in range(size)]
    rounds = divide_into_rounds(tasks, thresholds.first_heldout_tasks, thresholds.max_rounds)
    eval_suite = _Suite(rounds, thresholds)
    started = perf_counter()
    print(f"| true rate | passes | fails | undecided | asked | once in {_NUM_NIGHTS} | nights of {_NUM_NIGHTS} |")
    print("|---|---|---|---|---|---|---|")
    for rate in _RATES:
        print(_format_row(eval_suite, rate))
    print(f"{perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
