"""Rounds of an eval suite: more held-out prompts only where a gate cannot tell yet."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.baselines import few_shot_of
from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.config import EvaluationConfig
from mens_pipeline.evaluation.eval_results import (
    Examination,
    Generations,
    build_eval_results,
    eval_suite,
    prepare_generations,
)
from mens_pipeline.evaluation.evaluate import EarlierChampion
from mens_pipeline.evaluation.infill import infill_decoding, infill_suite
from mens_pipeline.evaluation.results import RESULTS, SCORED_COMPLETIONS, EvalResults, Progress, ScoredCompletion
from mens_pipeline.evaluation.scores import Score
from mens_pipeline.evaluation.tasks import Suite, Task, sample_of
from mens_pipeline.inference.generation import Decoding, Generation, GenerationJob
from mens_pipeline.inference.prepare import Conditions, completion_fits, generate_all
from mens_pipeline.models.adapter import Adapter, TrainingManifest
from mens_pipeline.promotion.gate import GateInputs, measure_all
from mens_pipeline.promotion.history import HistoryEvent, adapter_sha256_of, baseline_of, find_withdrawn, history_of
from mens_pipeline.promotion.ledger import Try, record_try
from mens_pipeline.promotion.policy import GateName, GateStatus, Reserve, Thresholds
from mens_pipeline.promotion.receipt import read_results, results_in
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import explain_unsigned
from mens_pipeline.storage.store import Artifact, ArtifactStore, key_of

_LEAST_SHARE: Final = 0.2
"""Of the first round; with fewer prompts left over, everything is asked at once: they would decide nothing, and a
further round costs confidence."""


@dataclass(frozen=True, slots=True)
class Demands:
    """Thresholds that decide on further rounds of an eval suite."""

    thresholds: Thresholds
    is_benchmark_asked: bool


def evaluate_in_rounds(  # noqa: PLR0913 - all that an evaluation rests on
    adapter: Adapter,
    suite: Examination,
    conditions: Conditions,
    store: ArtifactStore,
    *,
    demands: Demands,
    launch: Callable[[GenerationJob], int],
    log_line: Callable[[str], None],
    now: int,
) -> tuple[Artifact, bool]:
    """Let all models complete an eval suite, round by round until its gates can tell, and score what they wrote.

    Every adapter that was asked is counted in the ledger of the eval suite.

    Returns:
        The evaluation of all rounds that were asked, and whether it was reused.

    Raises:
        RefusedError: A generation failed, another champion was promoted between two
            rounds, or the ledger cannot be read.
        ConfigurationError: The store cannot be written.
    """
    rounds = rounds_of(suite.tasks, demands.thresholds)
    asked: list[Generations] = []
    champions: set[str | None] = set()
    most = demands.thresholds.decline_promotions
    earlier = tuple(_earlier_champions(store, adapter.digest, conditions.decoding, most, log_line))
    while True:
        number = len(asked) + 1
        part = replace(suite, tasks=rounds[number - 1])
        if asked:
            part = replace(part, few_shot=None, families=(), infill=None)
        baseline = baseline_of(store, adapter.digest)
        asked.append(prepare_generations(adapter, part, conditions, baseline))
        champion = baseline.key if baseline is not None else None
        champions.add(champion)
        if len(champions) > 1:
            raise RefusedError(
                f"{adapter.path}: another adapter was promoted while this one was asked. Evaluate again."
            )
        own = {name: one for name, one in asked[-1].items() if one.adapter_path and "champion" not in name}
        generate_all(own, store, launch, conditions.lock_path)
        tried = _try_of(asked[0]["adapter"], suite, demands.thresholds)
        counted = record_try(store, tried, now=now)
        reserve = [task for later in rounds[number:] for task in later]
        progress = Progress(
            attempt=counted.attempt,
            round=number,
            num_rounds=len(rounds),
            num_reserve=len(reserve),
            try_sha256=tried.sha256,
            store_id=counted.store_id,
        )
        so_far = replace(suite, tasks=tuple(task for earlier in rounds[:number] for task in earlier))
        evaluation, reused = build_eval_results(
            so_far,
            asked,
            adapter.manifest,
            store,
            launch,
            lock_path=conditions.lock_path,
            champion=champion,
            earlier=earlier,
            progress=progress,
        )
        results = results_in(evaluation.path)
        gates = undecided_gates(results, demands, reserve)
        if not gates:
            return evaluation, reused
        files = len({task.file for task in rounds[number]})
        names = ", ".join(gates)
        log_line(
            f"{names} cannot tell yet: round {number + 1} of {len(rounds)} asks {len(rounds[number])} more prompts "
            f"from {files} files"
        )


def assemble_suite(  # noqa: PLR0913, PLR0917 - all that is asked, and of whom
    manifest: TrainingManifest,
    heldout: Path,
    train: Path,
    benchmark: Benchmark | None,
    config: EvaluationConfig,
    thresholds: Thresholds,
    *,
    few_shot: Path,
    part: tuple[int, int] | None = None,
) -> tuple[Examination, Thresholds]:
    """Return all that an adapter is asked, and the thresholds that go with it; the base is shown rows of `train`.

    `part` counts the held-out prompts and those of the benchmark that are asked, in one round; None for all.
    """
    base = manifest.base_model
    suite = eval_suite(heldout, train, benchmark, completion_fits(base, config.decoding), config.family_tasks)
    if part is not None:
        tasks, thresholds = take_first(suite.tasks, thresholds, *part)
        # Of the tasks that are left out, as many would have been too long as of all.
        num_too_long = round(suite.num_too_long * len(tasks) / len(suite.tasks))
        suite = replace(suite, tasks=tasks, num_too_long=num_too_long)
    first = rounds_of(suite.tasks, thresholds)[0]
    few = few_shot_of(first, config.few_shot_tasks, few_shot, train, manifest.train_sha256)
    holes = infill_suite(heldout, train, manifest, config, completion_fits(base, infill_decoding(config)))
    return replace(suite, num_base_tasks=config.base_tasks, few_shot=few, infill=holes), thresholds


def _earlier_champions(
    store: ArtifactStore, adapter_sha256: str, decoding: Decoding, most: int, log_line: Callable[[str], None]
) -> Iterator[EarlierChampion]:
    """Yield the champions promoted last before the baseline of an adapter, with what their evaluations found.

    Those that a rollback withdrew are passed over, as are those that were asked in another way.
    """
    baseline, passed_over = baseline_of(store, adapter_sha256), {adapter_sha256, *find_withdrawn(store)}
    if baseline is not None:
        passed_over.add(adapter_sha256_of(baseline))
    newest: dict[str, HistoryEvent] = {}
    for event in reversed(history_of(store)):
        if event.action != "rollback" and event.adapter_sha256 not in passed_over:
            newest.setdefault(event.adapter_sha256, event)
    for event in [*newest.values()][:most]:
        evaluation, why = _evaluation_of(store, event.key), f"champion {event.key[:12]} is not compared with: "
        if evaluation is None or evaluation.find_changed() or explain_unsigned(evaluation, store):
            log_line(f"{why}its evaluation is gone or was changed")
            continue
        results = read_results(evaluation.file(RESULTS))
        if results is not None and not _same_way(results.decoding, decoding):
            continue
        scores = _scores_in(evaluation.file(SCORED_COMPLETIONS)) if results is not None else None
        if scores is None:
            log_line(f"{why}its evaluation was written by another version")
            continue
        yield EarlierChampion(event.key, event.adapter_sha256, event.timestamp_unix, scores)


def _scores_in(path: Path) -> dict[tuple[str, str], Score] | None:
    """Return the scores as `EarlierChampion` has them; None where another version wrote the file."""
    try:
        return {
            (one.prompt, one.reference): one.score
            for one in read_models(path, ScoredCompletion)
            if one.model == "adapter" and one.score.sample == 0
        }
    except RefusedError:
        return None


def _evaluation_of(store: ArtifactStore, key: str) -> Artifact | None:
    """Return the evaluation that a promoted adapter rests on, if all is still there."""
    found = store.get(Kind.PROMOTED_ADAPTER, key)
    for kind in (Kind.BENCHMARK_GATE, Kind.EVAL_RESULTS):
        refs = [parent for parent in found.parents if parent.kind == kind] if found is not None else []
        found = store.get(kind, refs[0].key) if refs else None
    return found


def _same_way(first: Decoding, second: Decoding) -> bool:
    """Return whether completions were drawn alike; how many at once decides nothing that counts here."""
    return first.model_copy(update={"batch_tokens": second.batch_tokens}) == second


def _try_of(asked: Generation, eval_suite: Examination, thresholds: Thresholds) -> Try:
    heldout = [task for task in eval_suite.tasks if task.suite is Suite.HELDOUT]
    return Try(
        adapter_sha256=asked.adapter_digest,
        decoding=asked.decoding,
        first_heldout_tasks=thresholds.first_heldout_tasks,
        max_rounds=thresholds.max_rounds,
        files=tuple(sorted({task.file for task in heldout})),
        rows_sha256=key_of({"rows": sorted([task.prompt, task.reference, task.tests or ""] for task in heldout)}),
        device=f"{asked.device} {asked.compute_dtype} {asked.held}",
    )


def rounds_of(tasks: Sequence[Task], thresholds: Thresholds) -> tuple[tuple[Task, ...], ...]:
    """Divide an eval suite into rounds of whole files, in an order that depends on their paths alone.

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


def take_first(
    tasks: Sequence[Task], thresholds: Thresholds, num_heldout: int, num_benchmark: int
) -> tuple[tuple[Task, ...], Thresholds]:
    """Return a part of an eval suite: held-out prompts of whole files in the order of rounds, and some of a benchmark.

    The thresholds that come with it ask all of it in one round; they demand what they did.
    """
    heldout = [task for task in tasks if task.suite is Suite.HELDOUT]
    two = thresholds.model_copy(update={"first_heldout_tasks": num_heldout, "max_rounds": 2})
    first = rounds_of(heldout, two)[0] if num_heldout < len(heldout) else tuple(heldout)
    chosen = {task.id for task in first}
    chosen |= {task.id for task in sample_of([t for t in tasks if t.suite is not Suite.HELDOUT], num_benchmark)}
    one = thresholds.model_copy(update={"first_heldout_tasks": max(1, len(first))})
    return tuple(task for task in tasks if task.id in chosen), one


def undecided_gates(results: EvalResults, demands: Demands, reserve: Sequence[Task]) -> tuple[GateName, ...]:
    """Return the gates for which it is worth asking a reserve of held-out prompts.

    Returns:
        The blocking gates that do not pass yet; none where one of them fails for good, or would not pass even if the
        reserve went as well as the interval of the rate allows.
    """
    if not reserve:
        return ()
    thresholds, progress = demands.thresholds, results.progress
    champion = results.champion.key if results.champion is not None else None
    later = progress.model_copy(update={"round": min(progress.round + 1, progress.num_rounds)})
    left = Reserve(
        num_tasks=len(reserve),
        num_tested=sum(task.tests is not None for task in reserve),
        required=1 - thresholds.allowed_chance(later),
    )
    inputs = GateInputs(results, "", None, "", champion, demands.is_benchmark_asked)
    names = []
    for outcome, found in measure_all(inputs, thresholds):
        if outcome.block and not outcome.passed and outcome.source == RESULTS:
            may_be_decided = outcome.status is GateStatus.UNDECIDED and found.may_pass(left)
            if not (found.grows or may_be_decided):
                return ()
            names.append(outcome.name)
    return tuple(names)
