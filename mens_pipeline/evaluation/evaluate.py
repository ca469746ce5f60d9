"""From answers to the documents of an evaluation."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from mens_pipeline.evaluation.best_of import best_of
from mens_pipeline.evaluation.execution import completed, run_hidden_tests
from mens_pipeline.evaluation.few_shot import FewShot
from mens_pipeline.evaluation.judge import Judgement, judge
from mens_pipeline.evaluation.results import (
    CategoryStats,
    ChampionComparison,
    EvalResults,
    FallbackComparison,
    FewShotComparison,
    LocalReport,
    PassAtK,
    Progress,
    Subject,
    TaskResult,
)
from mens_pipeline.evaluation.scores import Scores, grouped, scores_of_model
from mens_pipeline.evaluation.statistics import Paired, paired
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.inference.generation import Answer, Decoding, as_served
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.language import CONSTRUCTS


@dataclass(frozen=True, slots=True)
class ChampionAnswers:
    """Answers of the champion.

    `key` is that of the promoted adapter in the store.
    """

    key: str
    adapter_sha256: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of all models; each in the order of the tasks.

    Attributes:
        base: The base model alone, to some of the tasks.
        adapter: With the adapter that is judged; second tries, constrained by the parser, come behind all others.
        champion: With the adapter that is in use, if there is one.
        few_shot: The base with examples in its prompt, to a sample of the tasks.
        families: With the adapter, to synthetic tasks.
    """

    base: tuple[Answer, ...]
    adapter: tuple[Answer, ...]
    champion: ChampionAnswers | None = None
    few_shot: tuple[Answer, ...] = ()
    families: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything that is known of two models after they answered.

    Attributes:
        tasks: What was asked, synthetic tasks last.
        base: The judged answers of the base to some of the tasks, in their order.
        few_shot: Those of the base with examples in its prompt, to some of the tasks.
        adapter: Those of the adapter.
        fallback: Its second tries, constrained by the parser.
        results: The figures.
    """

    tasks: tuple[Task, ...]
    base: tuple[Judgement, ...]
    few_shot: tuple[Judgement, ...]
    adapter: tuple[Judgement, ...]
    fallback: tuple[Judgement, ...]
    results: EvalResults


def evaluate_answers(  # noqa: PLR0913 - all that the figures are made from
    tasks: Sequence[Task],
    answers: Answers,
    subject: Subject,
    decoding: Decoding,
    progress: Progress,
    *,
    num_too_long: int = 0,
    num_tests_dropped: int = 0,
    few_shot: FewShot | None = None,
    families: Sequence[Task] = (),
) -> Evaluation:
    """Judge the answers of all models.

    At least one of `tasks` is held out; `families` are the synthetic ones that the adapter was asked.
    """
    has_fallback = decoding.syntax is Syntax.FALLBACK
    second = [answer for answer in answers.adapter if has_fallback and answer.constrained]
    first = [answer for answer in answers.adapter if not (has_fallback and answer.constrained)]
    judged_base, judged_adapter, judged_second = (judge_all(tasks, some) for some in (answers.base, first, second))
    again = {(judgement.task, judgement.sample): judgement for judgement in judged_second}
    served = [again.get((judgement.task, judgement.sample), judgement) for judgement in judged_adapter]
    judged_few_shot, judged_families = judge_all(tasks, answers.few_shot), judge_all(families, answers.families)
    of_base = {answer.task for answer in answers.base}
    base_tasks = [task for task in tasks if task.id in of_base]
    base_scores, adapter_scores = scores_of_model(base_tasks, judged_base), scores_of_model(tasks, judged_adapter)
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
        **_differences(base_tasks, judged_base, [judged for judged in judged_adapter if judged.task in of_base]),
        champion=_champion(tasks, answers.champion, judged_adapter) if answers.champion else None,
        few_shot=_few_shot(few_shot, judged_few_shot, judged_adapter) if few_shot is not None else None,
        fallback=_fallback(tasks, judged_adapter, served, second) if has_fallback else None,
        best_of=best_of(tasks, as_served(answers.adapter), served),
        families=scores_of_model(families, judged_families).suites,
    )
    asked, of_adapter = (*tasks, *families), (*judged_adapter, *judged_families)
    return Evaluation(asked, judged_base, judged_few_shot, of_adapter, judged_second, results)


def _champion(tasks: Sequence[Task], champion: ChampionAnswers, adapter: Iterable[Judgement]) -> ChampionComparison:
    judged = judge_all(tasks, champion.answers)
    return ChampionComparison(
        key=champion.key,
        adapter_sha256=champion.adapter_sha256,
        scores=scores_of_model(tasks, judged),
        **_differences(tasks, judged, adapter),
    )


def _few_shot(asked: FewShot, judged: Sequence[Judgement], adapter: Iterable[Judgement]) -> FewShotComparison:
    names = {task.id for task in asked.tasks}
    return FewShotComparison(
        prompt=asked.prompt,
        scores=scores_of_model(asked.tasks, judged),
        **_differences(asked.tasks, judged, [judgement for judgement in adapter if judgement.task in names]),
    )


def _fallback(
    tasks: Sequence[Task], free: Sequence[Judgement], served: Sequence[Judgement], answers: Sequence[Answer]
) -> FallbackComparison:
    """Score the adapter with its constrained second tries in place of the free answers that are no program."""
    return FallbackComparison(
        scores=scores_of_model(tasks, served),
        num_constrained=len(answers),
        num_forced=sum(answer.forced for answer in answers),
        **_differences(tasks, free, served),
    )


def _differences(tasks: Iterable[Task], first: Iterable[Judgement], second: Iterable[Judgement]) -> dict[str, Paired]:
    """Compare the first samples of two models on the same tasks, in the same order."""
    files = {task.id: task.file for task in tasks}
    both = list(zip(_first(first), _first(second), strict=True))

    def compared(does: Callable[[Judgement], bool], pairs: Sequence[tuple[Judgement, Judgement]] = both) -> Paired:
        return paired([does(a) for a, _ in pairs], [does(b) for _, b in pairs], [files[a.task] for a, _ in pairs])

    return {
        "parse_difference": compared(lambda j: j.parses),
        "pass_difference": compared(lambda j: j.passed),
        "test_difference": compared(lambda j: j.passes_tests, [pair for pair in both if pair[0].has_tests]),
    }


def judge_all(tasks: Sequence[Task], answers: Iterable[Answer]) -> tuple[Judgement, ...]:
    """Judge answers, and run those that have hidden tests."""
    by_id = {task.id: task for task in tasks}
    judged = [judge(by_id[answer.task], answer) for answer in answers]
    tested = [(place, tests) for place, j in enumerate(judged) if j.parses and (tests := by_id[j.task].tests)]
    asked = [by_id[judged[n].task] for n, _ in tested]
    pairs = zip(asked, tested, strict=True)
    executions = run_hidden_tests(
        [(completed(judged[n].program, task.given, task.mode), tests) for task, (n, tests) in pairs]
    )
    for (place, _), execution in zip(tested, executions, strict=True):
        judged[place] = judged[place].model_copy(update={"execution": execution})
    return tuple(judged)


def with_sound_tests(tasks: Sequence[Task]) -> tuple[tuple[Task, ...], int]:
    """Take hidden tests away where the reference answer itself does not pass them: they would judge nothing.

    Returns:
        The tasks in order, and how many of them lost their tests.
    """
    answers = [
        Answer(task=task.id, sample=0, text=task.reference, num_tokens=0, stopped=True)
        for task in tasks
        if task.tests is not None
    ]
    failed = {j.task for j in judge_all(tasks, answers) if not j.passes_tests}
    return tuple(replace(task, tests=None) if task.id in failed else task for task in tasks), len(failed)


def local_report(evaluation: Evaluation, bench: str) -> LocalReport | None:
    """Return the benchmark results of the adapter, task by task; None when the benchmark was left out."""
    tasks = [task for task in evaluation.tasks if task.suite is Suite.BENCHMARK]
    if not tasks:
        return None
    samples = grouped(evaluation.adapter)
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
    """Return the benchmark results of the adapter in a few numbers; None when the benchmark was left out."""
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
    assert value is not None, "an evaluation has tasks of every suite it reports"  # noqa: S101 - our own impossibility
    return value


def _first(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Return the first sample of every task."""
    return [judgement for judgement in judgements if judgement.sample == 0]


def _richness(task: Task, judgement: Judgement) -> float:
    """Return the number of different constructs of a completion over those that the task asks for, at most 1."""
    asked = {task.construct, *(requirement.construct_ for requirement in task.requires)}
    return min(1.0, len(judgement.constructs) / len(asked))


def _category_stats(results: Sequence[TaskResult]) -> Iterable[CategoryStats]:
    totals = Counter(result.category for result in results)
    at_1 = Counter(result.category for result in results if result.passed_at_1)
    at_k = Counter(result.category for result in results if result.passed_at_k)
    for category, total in sorted(totals.items()):
        yield CategoryStats(category=category, total=total, passed_at_1=at_1[category], passed_at_k=at_k[category])
