"""Turn completions into the documents of an evaluation."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mens_pipeline.evaluation.best_of import best_of
from mens_pipeline.evaluation.judge import judge, prepend_given, run_hidden_tests
from mens_pipeline.evaluation.results import (
    CategoryStats,
    ChampionComparison,
    EarlierComparison,
    EvalResults,
    FallbackComparison,
    FewShotComparison,
    InfillResults,
    LocalReport,
    PassAtK,
    Progress,
    Subject,
    TaskResult,
)
from mens_pipeline.evaluation.scores import Score, Scores, compare_scores, group_by_task, scores_of_model
from mens_pipeline.evaluation.statistics import MOST_TASKS, Paired
from mens_pipeline.evaluation.tasks import FewShot, Suite, Task
from mens_pipeline.inference.generation import Completion, Decoding, Syntax, as_served
from mens_pipeline.language import CONSTRUCTS


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores and figures of an evaluation.

    Synthetic tasks come last in `tasks`. `base` and `few_shot` score some of the tasks, in the same order; `fallback`
    scores the constrained second tries of the adapter.
    """

    tasks: tuple[Task, ...]
    base: tuple[Score, ...]
    few_shot: tuple[Score, ...]
    adapter: tuple[Score, ...]
    fallback: tuple[Score, ...]
    results: EvalResults


@dataclass(frozen=True, slots=True)
class EarlierChampion:
    """A former champion, last promoted at `promoted_unix`, in seconds since 1970.

    `scores` maps prompt and reference to the score of its first free completion.
    """

    key: str
    adapter_sha256: str
    promoted_unix: int
    scores: Mapping[tuple[str, str], Score]


def evaluate_completions(  # noqa: PLR0913 - the inputs of the figures
    tasks: Sequence[Task],
    completions: Mapping[str, Sequence[Completion]],
    subject: Subject,
    decoding: Decoding,
    progress: Progress,
    *,
    champion: tuple[str, str] | None = None,
    earlier: Sequence[EarlierChampion] = (),
    num_too_long: int = 0,
    num_tests_dropped: int = 0,
    few_shot: FewShot | None = None,
    families: Sequence[Task] = (),
    infill: InfillResults | None = None,
) -> Evaluation:
    """Score the completions of all models, and compare the other models with the adapter.

    `tasks` are the eval suite, at least one of them held out. `completions` maps models to completions, in the order of
    the tasks: `base` completes some of them; `adapter` all, with its constrained second tries last; `champion` all;
    `few_shot` some; `families` is the adapter on synthetic tasks. `champion` is the key of the adapter in use, and the
    SHA-256 of its weights; `earlier` champions completed with the same decoding.
    """
    has_fallback = decoding.syntax is Syntax.FALLBACK
    of_adapter = completions["adapter"]
    second = [completion for completion in of_adapter if has_fallback and completion.constrained]
    first = [completion for completion in of_adapter if not (has_fallback and completion.constrained)]
    evaluated_base, evaluated_adapter, evaluated_second, evaluated_few_shot = (
        score_completions(tasks, some) for some in (completions["base"], first, second, completions.get("few_shot", ()))
    )
    evaluated_families = score_completions(families, completions.get("families", ()))
    again = {(score.task, score.sample): score for score in evaluated_second}
    served = [again.get((score.task, score.sample), score) for score in evaluated_adapter]
    of_base = {completion.task for completion in completions["base"]}
    base_tasks = [task for task in tasks if task.id in of_base]
    base_scores, adapter_scores = scores_of_model(base_tasks, evaluated_base), scores_of_model(tasks, evaluated_adapter)
    overall = adapter_scores.overall
    heldout = adapter_scores.suites[Suite.HELDOUT]
    parse_rate = _share(heldout.parse_rate.value)
    results = EvalResults(
        run_id=subject.adapter_sha256[:12],
        total_samples=overall.num_samples,
        format_validity=1 - _share(overall.empty_rate.value),
        safety_rejection_rate=_share(overall.refusal_rate.value),
        vox_parse_rate=parse_rate,
        construct_coverage=len(overall.coverage.present),
        construct_total=len(CONSTRUCTS),
        construct_coverage_pct=100 * overall.coverage.share,
        quality_proxy=parse_rate,
        subject=subject,
        decoding=decoding,
        progress=progress,
        num_too_long=num_too_long,
        num_tests_dropped=num_tests_dropped,
        base=base_scores,
        adapter=adapter_scores,
        **_differences(
            base_tasks, evaluated_base, [evaluated for evaluated in evaluated_adapter if evaluated.task in of_base]
        ),
        champion=_champion(tasks, *champion, completions["champion"], evaluated_adapter) if champion else None,
        earlier=_earlier(tasks, earlier, evaluated_adapter),
        few_shot=_few_shot(few_shot, evaluated_few_shot, evaluated_adapter) if few_shot is not None else None,
        fallback=_fallback(tasks, evaluated_adapter, served, second) if has_fallback else None,
        best_of=best_of(tasks, as_served(of_adapter), served),
        families=scores_of_model(families, evaluated_families).suites,
        infill=infill,
    )
    asked, all_of_adapter = (*tasks, *families), (*evaluated_adapter, *evaluated_families)
    return Evaluation(asked, evaluated_base, evaluated_few_shot, all_of_adapter, evaluated_second, results)


def _champion(
    tasks: Sequence[Task], key: str, sha256: str, completions: Sequence[Completion], adapter: Iterable[Score]
) -> ChampionComparison:
    evaluated = score_completions(tasks, completions)
    return ChampionComparison(
        key=key,
        adapter_sha256=sha256,
        scores=scores_of_model(tasks, evaluated),
        **_differences(tasks, evaluated, adapter),
    )


def _earlier(
    tasks: Sequence[Task], champions: Sequence[EarlierChampion], adapter: Iterable[Score]
) -> EarlierComparison | None:
    """Compare with the older half of the former champions, pooled over shared prompts.

    The best of them would be the luckiest. Their completions are scored again, so that a stricter front end or hidden
    test does not count as a decline.
    """
    first = {score.task: score for score in adapter if score.sample == 0}

    def find_shared(champion: EarlierChampion) -> list[tuple[Task, Score]]:
        found = ((task, champion.scores.get((task.prompt, task.reference))) for task in tasks)
        return [(task, score) for task, score in found if score is not None]

    def score_again(champion: EarlierChampion) -> tuple[Score, ...]:
        shared = find_shared(champion)
        completions = [
            Completion(task=task.id, sample=0, text=score.program, num_tokens=score.num_tokens, stopped=score.stopped)
            for task, score in shared
        ]
        return score_completions([task for task, _ in shared], completions)

    comparable = sorted(filter(find_shared, champions), key=lambda champion: champion.promoted_unix)
    if not comparable:
        return None
    oldest, num_compared = comparable[0], max(1, min((len(comparable) + 1) // 2, MOST_TASKS // len(tasks)))
    then = [score_again(champion) for champion in comparable[:num_compared]]
    pairs = [(score, first[score.task]) for scores in then for score in scores]
    return EarlierComparison(
        key=oldest.key,
        adapter_sha256=oldest.adapter_sha256,
        scores=scores_of_model([task for task, _ in find_shared(oldest)], then[0]),
        **compare_scores(pairs, {task.id: task.file for task in tasks}),
        promoted_unix=oldest.promoted_unix,
        num_champions=len(comparable),
        num_compared=num_compared,
    )


def _few_shot(asked: FewShot, evaluated: Sequence[Score], adapter: Iterable[Score]) -> FewShotComparison:
    names = {task.id for task in asked.tasks}
    return FewShotComparison(
        prompt=asked.prompt,
        scores=scores_of_model(asked.tasks, evaluated),
        **_differences(asked.tasks, evaluated, [score for score in adapter if score.task in names]),
    )


def _fallback(
    tasks: Sequence[Task], free: Sequence[Score], served: Sequence[Score], completions: Sequence[Completion]
) -> FallbackComparison:
    return FallbackComparison(
        scores=scores_of_model(tasks, served),
        num_constrained=len(completions),
        num_forced=sum(completion.forced for completion in completions),
        **_differences(tasks, free, served),
    )


def _differences(tasks: Iterable[Task], first: Iterable[Score], second: Iterable[Score]) -> dict[str, Paired]:
    samples = ([score for score in some if score.sample == 0] for some in (first, second))
    both = list(zip(*samples, strict=True))
    return compare_scores(both, {task.id: task.file for task in tasks})


def score_completions(tasks: Sequence[Task], completions: Iterable[Completion]) -> tuple[Score, ...]:
    """Score completions, and run hidden tests on those that parse."""
    by_id = {task.id: task for task in tasks}
    scores = [judge(by_id[completion.task], completion) for completion in completions]
    programs = {
        place: (prepend_given(score.program, task.given, task.mode), task.tests)
        for place, score in enumerate(scores)
        if score.parses and (task := by_id[score.task]).tests
    }
    executions = run_hidden_tests([*programs.values()])
    for place, execution in zip(programs, executions, strict=True):
        scores[place] = scores[place].model_copy(update={"execution": execution})
    return tuple(scores)


def with_sound_tests(tasks: Sequence[Task]) -> tuple[tuple[Task, ...], int]:
    """Drop hidden tests that the reference fails; return the tasks in order, and how many lost their tests."""
    completions = [
        Completion(task=task.id, sample=0, text=task.reference, num_tokens=0, stopped=True)
        for task in tasks
        if task.tests is not None
    ]
    failed = {j.task for j in score_completions(tasks, completions) if not j.passes_tests}
    return tuple(replace(task, tests=None) if task.id in failed else task for task in tasks), len(failed)


def local_report(evaluation: Evaluation, bench: str) -> LocalReport | None:
    """Return the benchmark results of the adapter, task by task; None without a benchmark."""
    tasks = [task for task in evaluation.tasks if task.suite is Suite.BENCHMARK]
    if not tasks:
        return None
    samples = group_by_task(evaluation.adapter)
    results = tuple(
        TaskResult(
            id=task.id.removeprefix("benchmark/"),
            category=task.construct,
            passed_at_1=samples[task.id][0].passed,
            passed_at_k=any(j.passed for j in samples[task.id]),
            samples=tuple(samples[task.id]),
        )
        for task in tasks
    )
    first = [result.samples[0] for result in results]
    at_1, at_k = sum(r.passed_at_1 for r in results), sum(r.passed_at_k for r in results)
    decoding = evaluation.results.decoding
    return LocalReport(
        model=f"{evaluation.results.subject.base_model} with adapter {evaluation.results.run_id}",
        bench=bench,
        max_tokens=decoding.max_new_tokens,
        temperature=decoding.temperature,
        k=decoding.num_samples,
        seed_base=decoding.seed,
        total=len(results),
        passed_at_1=at_1,
        passed_at_k=at_k,
        pass_rate_at_1=at_1 / len(results),
        pass_rate_at_k=at_k / len(results),
        semantic_task_success=sum(j.parses and not j.unmet for j in first),
        anti_stub_task_success=sum(not j.stub and not j.empty for j in first),
        placeholder_event_rate=sum(j.stub for j in first) / len(first),
        trivial_placeholder_event_rate=sum(j.empty for j in first) / len(first),
        construct_richness_mean=sum(_richness(t, j) for t, j in zip(tasks, first, strict=True)) / len(first),
        category_stats=tuple(_category_stats(results)),
        results=results,
    )


def pass_at_k_report(results: EvalResults) -> PassAtK | None:
    """Return the pass rates of the adapter on the benchmark; None without a benchmark."""
    scores: Scores | None = results.adapter.suites.get(Suite.BENCHMARK)
    if scores is None:
        return None
    return PassAtK(
        k=scores.k,
        seed_base=results.decoding.seed,
        total=scores.num_tasks,
        pass_rate_at_1=_share(scores.pass_at_1.value),
        pass_rate_at_k=_share(scores.pass_at_k.value),
        pass_rates={number: _share(rate.value) for number, rate in scores.pass_at.items()},
        pass_at_1_low=scores.pass_at_1.low,
        pass_at_1_high=scores.pass_at_1.high,
    )


def _share(value: float | None) -> float:
    assert value is not None, "an evaluation has tasks of every suite it reports"  # noqa: S101 - an internal invariant
    return value


def _richness(task: Task, score: Score) -> float:
    asked = {task.construct, *(requirement.construct_ for requirement in task.requires)}
    return min(1.0, len(score.constructs) / len(asked))


def _category_stats(results: Sequence[TaskResult]) -> Iterable[CategoryStats]:
    totals = Counter(result.category for result in results)
    at_1 = Counter(result.category for result in results if result.passed_at_1)
    at_k = Counter(result.category for result in results if result.passed_at_k)
    for category, total in sorted(totals.items()):
        yield CategoryStats(category=category, total=total, passed_at_1=at_1[category], passed_at_k=at_k[category])
