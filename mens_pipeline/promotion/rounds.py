"""Rounds of an exam: more held-out prompts only where a gate cannot tell yet."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.eval_results import (
    Examination,
    Generations,
    build_eval_results,
    prepare_generations,
)
from mens_pipeline.evaluation.results import RESULTS, EvalResults, Progress
from mens_pipeline.evaluation.statistics import Rate
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.inference.prepare import Conditions, PreparedGeneration, all_generated
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.promotion.gate import GateInputs, GateStatus, allowed_chance, decide
from mens_pipeline.promotion.history import baseline_of
from mens_pipeline.promotion.ledger import Try, record_try
from mens_pipeline.promotion.policy import GateName, Thresholds
from mens_pipeline.promotion.receipt import results_in
from mens_pipeline.storage.store import Artifact, ArtifactStore, key_of

_LEAST_SHARE: Final = 0.2
"""Of the first round; with fewer prompts left over, everything is asked at once: they would decide nothing, and a
further round costs confidence."""

_GROW: Final = (GateName.EXAM_SIZE, GateName.COVERAGE)
"""Gates that fail for want of tasks, and pass when enough more are asked."""


@dataclass(frozen=True, slots=True)
class Demands:
    """Thresholds that decide on further rounds of an exam."""

    thresholds: Thresholds
    is_benchmark_asked: bool


def evaluate_in_rounds(  # noqa: PLR0913 - all that an evaluation rests on
    adapter: Adapter,
    exam: Examination,
    conditions: Conditions,
    store: ArtifactStore,
    *,
    demands: Demands,
    launch: Callable[[PreparedGeneration], int],
    tell: Callable[[str], None],
    work: str,
    now: int,
) -> tuple[Artifact, bool]:
    """Let all models answer an exam, round by round until its gates can tell, and judge what they wrote.

    Every adapter that answered is counted in the ledger of the exam.

    No other evaluation at work may have the same `work`, which names the folders of the jobs.

    Returns:
        The evaluation of all rounds that were asked, and whether it was reused.

    Raises:
        RefusedError: A model could not answer, another champion was promoted between two
            rounds, or the ledger cannot be read.
        ConfigurationError: The store cannot be written.
    """
    rounds = rounds_of(exam.tasks, demands.thresholds)
    asked: list[Generations] = []
    while True:
        number = len(asked) + 1
        part = replace(exam, tasks=rounds[number - 1])
        if asked:
            part = replace(part, few_shot=None, families=())
        asked.append(
            prepare_generations(adapter, part, conditions, store, f"{work}-{number}", partial(baseline_of, store))
        )
        if len({generations.champion.key if generations.champion else None for generations in asked}) > 1:
            raise RefusedError(
                f"{adapter.path}: another adapter was promoted while this one was asked. Evaluate again."
            )
        own = {"adapter": asked[-1].adapter, "families": asked[-1].families}
        all_generated({name: one for name, one in own.items() if one is not None}, store, launch)
        tried = _try_of(asked[0].adapter, exam, demands.thresholds)
        reserve = [task for later in rounds[number:] for task in later]
        progress = Progress(
            attempt=record_try(store, tried, now=now),
            round=number,
            num_rounds=len(rounds),
            num_reserve=len(reserve),
            try_sha256=tried.sha256,
        )
        so_far = replace(exam, tasks=tuple(task for earlier in rounds[:number] for task in earlier))
        evaluation, reused = build_eval_results(so_far, asked, adapter.manifest, store, launch, progress=progress)
        results = results_in(evaluation.path)
        gates = undecided_gates(results, demands, reserve)
        if not gates:
            return evaluation, reused
        files = len({task.file for task in rounds[number]})
        names = ", ".join(gates)
        tell(
            f"{names} cannot tell yet: round {number + 1} of {len(rounds)} asks {len(rounds[number])} more prompts "
            f"from {files} files"
        )


def _try_of(adapter: PreparedGeneration, exam: Examination, thresholds: Thresholds) -> Try:
    job, heldout = adapter.job, [task for task in exam.tasks if task.suite is Suite.HELDOUT]
    return Try(
        adapter_sha256=adapter.inputs["adapter_sha256"],
        decoding=job.decoding,
        first_heldout_tasks=thresholds.first_heldout_tasks,
        max_rounds=thresholds.max_rounds,
        files=tuple(sorted({task.file for task in heldout})),
        rows_sha256=key_of({"rows": sorted([task.prompt, task.reference, task.tests or ""] for task in heldout)}),
        device=f"{job.device} {job.compute_dtype} {job.held}",
        engine=job.engine,
    )


def rounds_of(tasks: Sequence[Task], thresholds: Thresholds) -> tuple[tuple[Task, ...], ...]:
    """Divide an exam into rounds of whole files, in an order that depends on their paths alone.

    Tasks of a benchmark are all in the first round.

    Returns:
        The tasks of each round, in the order of `tasks`; the rounds after the first are about as large as each other.
    """
    first, most = thresholds.first_heldout_tasks, thresholds.max_rounds
    files: defaultdict[str, int] = defaultdict(int)
    for task in tasks:
        if task.suite is Suite.HELDOUT:
            files[task.file] += 1
    num_heldout = sum(files.values())
    left = num_heldout - first
    num_rounds = most if left >= _LEAST_SHARE * first else 1
    ends = [first + left * number / (num_rounds - 1) for number in range(num_rounds - 1)]
    round_of, asked = {}, 0
    for file in sorted(files, key=lambda file: hashlib.sha256(file.encode()).digest()):
        round_of[file] = sum(asked >= end for end in ends)
        asked += files[file]
    divided = tuple(
        tuple(task for task in tasks if round_of.get(task.file, 0) == number) for number in range(num_rounds)
    )
    return tuple(part for part in divided if part)


def undecided_gates(results: EvalResults, demands: Demands, reserve: Sequence[Task]) -> tuple[GateName, ...]:
    """Return the gates for which it is worth asking a reserve of held-out prompts.

    Returns:
        The blocking gates that do not pass yet; none where one of them fails for good, or would not pass even if the
        reserve were answered as well as the interval of the rate allows.
    """
    thresholds = demands.thresholds
    champion = results.champion.key if results.champion is not None else None
    outcomes = decide(GateInputs(results, "", None, "", champion, demands.is_benchmark_asked), thresholds)
    open_ = [outcome for outcome in outcomes if outcome.block and not outcome.passed and outcome.source == RESULTS]
    names = [outcome.name for outcome in open_]
    is_lost = any(outcome.status is GateStatus.FAILED and outcome.name not in _GROW for outcome in open_)
    if (
        not reserve
        or is_lost
        or not all(name in _GROW or _may_pass(name, results, thresholds, reserve) for name in names)
    ):
        return ()
    return tuple(names)


def _may_pass(name: GateName, results: EvalResults, thresholds: Thresholds, reserve: Sequence[Task]) -> bool:
    """Return whether an undecided gate would pass if the reserve were answered as well as can be hoped for."""
    progress = results.progress
    later = progress.model_copy(update={"round": min(progress.round + 1, progress.num_rounds)})
    required = 1 - allowed_chance(thresholds, later)
    num_tested = sum(task.tests is not None for task in reserve)
    scores = results.adapter.overall
    match name:
        case GateName.PARSE_RATE | GateName.RESOLVE_RATE:
            rate: Rate = getattr(results.adapter.suites[Suite.HELDOUT], name)
            lowest, surely = thresholds.on_heldout(name)
            return rate.high >= lowest and _best_chance(rate, surely, len(reserve)) >= required
        case GateName.TEST_RATE:
            return _best_chance(scores.test_rate, thresholds.min_test_rate, num_tested) >= required
        case GateName.STOP_RATE:
            return _best_chance(scores.stop_rate, thresholds.min_stop_rate, len(reserve)) >= required
        case GateName.ANTI_STUB:
            worst = scores.stub_rate.chance_after(thresholds.max_stub_rate, len(reserve), scores.stub_rate.low)
            return 1 - worst >= required
        case GateName.TEST_GAIN:
            return num_tested > 0
        case _:
            return name is GateName.GAIN_OVER_BASE


def _best_chance(rate: Rate, floor: float, num_more: int) -> float:
    return rate.chance_after(floor, num_more, rate.high)
