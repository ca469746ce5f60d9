"""Best-of-n: what a user gets who is shown one of several answers, chosen without hidden tests."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from mens_pipeline.evaluation.judge import Judgement
from mens_pipeline.evaluation.results import BestOf, BestOfScores
from mens_pipeline.evaluation.scores import Scores, scores_of_model
from mens_pipeline.evaluation.selection import Candidate, Selector
from mens_pipeline.evaluation.statistics import paired
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.inference.generation import Answer


def best_of(tasks: Sequence[Task], answers: Sequence[Answer], judged: Sequence[Judgement]) -> BestOf | None:
    """Choose an answer to each prompt, and score what was chosen.

    `answers` are those that are served; `judged` has the same order.

    Returns:
        The figures; None with one answer to each prompt.
    """
    samples: defaultdict[str, list[tuple[Answer, Judgement]]] = defaultdict(list)
    for answer, judgement in zip(answers, judged, strict=True):
        samples[answer.task].append((answer, judgement))
    n = len(samples[tasks[0].id])
    if n <= 1:
        return None
    steps: Counter[str] = Counter()
    chosen: dict[str, Judgement] = {}
    with Selector() as selector:
        for task in tasks:
            candidates = [Candidate(answer.text, answer.likelihood or 0.0) for answer, _ in samples[task.id]]
            choice = selector.choose(task.prompt, task.mode, candidates)
            steps[choice.step] += 1
            chosen[task.id] = samples[task.id][choice.place][1]
    scores = scores_of_model(tasks, chosen.values())
    pairs = [(task, samples[task.id][0][1], chosen[task.id]) for task in tasks]
    tested = [pair for pair in pairs if pair[0].tests is not None]
    return BestOf(
        n=n,
        overall=_scores(scores.overall),
        suites={suite: _scores(of_suite) for suite, of_suite in scores.suites.items()},
        steps=dict(steps),
        chosen={name: judgement.sample for name, judgement in chosen.items()},
        pass_difference=paired(
            [first.passed for _, first, _ in pairs], [best.passed for *_, best in pairs], [t.file for t, *_ in pairs]
        ),
        test_difference=paired(
            [first.passes_tests for _, first, _ in tested],
            [best.passes_tests for *_, best in tested],
            [task.file for task, *_ in tested],
        ),
    )


def _scores(scores: Scores) -> BestOfScores:
    return BestOfScores(
        num_tasks=scores.num_tasks,
        parse_rate=scores.parse_rate,
        resolve_rate=scores.resolve_rate,
        pass_rate=scores.pass_at_1,
        test_rate=scores.test_rate,
    )
