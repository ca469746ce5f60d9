"""Small tasks, answers and evaluations."""

from collections.abc import Iterable, Sequence
from typing import Any

from mens_pipeline.evaluation.evaluate import Answers, ChampionAnswers, Evaluation, evaluate_answers
from mens_pipeline.evaluation.judge import Judgement
from mens_pipeline.evaluation.requirements import Requirement
from mens_pipeline.evaluation.results import EvalResults, JudgedAnswer, Progress, Subject
from mens_pipeline.evaluation.scores import ModelScores, Scores
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.inference.generation import Answer, Decoding
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.language import Mode

GOOD = "fn add(a: int, b: int) to int {\n    return a + b\n}\n"
BROKEN = "fn add(a: int, b: int) to int {\n    return a +\n}\n"
OTHER = "type Point {\n    x: int\n}\n"

PROGRESS = Progress(attempt=1, round=1, num_rounds=1, num_reserve=0)
SUBJECT = Subject(
    adapter_sha256="ad" * 32,
    base_sha256="ba" * 32,
    base_model="tiny",
    heldout_sha256="cd" * 32,
    benchmark_sha256="be" * 32,
)


def task(number: int = 0, suite: Suite = Suite.HELDOUT, **changes: Any) -> Task:
    """A task that asks for the function `add`, but for the changes."""
    values: dict[str, Any] = {
        "id": f"{suite}/{number:04}",
        "suite": suite,
        "file": f"{suite}/{number:04}.vox",
        "prompt": "Write a function `add` in Vox.",
        "construct": "function",
        "name": "add",
        "difficulty": "easy",
        "mode": Mode.SOURCE,
        "reference": GOOD,
        **changes,
    }
    return Task(**values)


def needs(construct: str, **keys: Any) -> Requirement:
    """A requirement."""
    return Requirement.model_validate({"construct": construct, **keys})


def answer(text: str = GOOD, to: Task | None = None, sample: int = 0, *, stopped: bool = True) -> Answer:
    """An answer of seven tokens."""
    return Answer(task=(to or task()).id, sample=sample, text=text, num_tokens=7, stopped=stopped)


def answers_to(tasks: Sequence[Task], texts: Iterable[str]) -> tuple[Answer, ...]:
    """One answer to each task."""
    return tuple(answer(text, to) for to, text in zip(tasks, texts, strict=True))


def evaluation(
    base: Sequence[str] = (BROKEN, GOOD, BROKEN),
    adapter: Sequence[str] = (GOOD, GOOD, BROKEN),
    champion: Sequence[str] | None = None,
    num_benchmark: int = 1,
    second: Sequence[str | None] = (),
) -> Evaluation:
    """One answer of each model to each task; the last tasks are those of a benchmark.

    `second` is what the adapter wrote at the second try, None for nothing; without it there is no fallback.
    """
    num_heldout = len(base) - num_benchmark
    tasks = [task(n, Suite.HELDOUT if n < num_heldout else Suite.BENCHMARK) for n in range(len(base))]
    used = ChampionAnswers("c" * 64, "cc" * 32, answers_to(tasks, champion)) if champion is not None else None
    tries = (answer(text, to) for text, to in zip(second, tasks, strict=False) if text is not None)
    again = tuple(a.model_copy(update={"constrained": True, "forced": n == 0}) for n, a in enumerate(tries))
    answers = Answers(answers_to(tasks, base), (*answers_to(tasks, adapter), *again), used)
    decoding = Decoding(syntax=Syntax.FALLBACK if second else Syntax.FREE)
    return evaluate_answers(tasks, answers, SUBJECT, decoding, PROGRESS)


def judged_answers(evaluated: Evaluation) -> tuple[JudgedAnswer, ...]:
    """The lines of `judged_answers.jsonl`."""
    by_id = {task.id: task for task in evaluated.tasks}
    return (
        *(_judged("base", by_id[judgement.task], judgement) for judgement in evaluated.base),
        *(_judged("few_shot", by_id[judgement.task], judgement) for judgement in evaluated.few_shot),
        *(_judged("adapter", by_id[judgement.task], judgement) for judgement in evaluated.adapter),
        *(_judged("fallback", by_id[judgement.task], judgement) for judgement in evaluated.fallback),
    )


def _judged(model: Any, of: Task, judgement: Judgement) -> JudgedAnswer:
    return JudgedAnswer(
        model=model,
        suite=of.suite,
        prompt=of.prompt,
        asked=of.construct,
        difficulty=of.difficulty,
        reference=of.reference,
        judgement=judgement,
    )


def with_overall(results: EvalResults, **changes: Any) -> EvalResults:
    """The same results, but for some figures of the adapter over everything."""
    overall = results.adapter.overall.model_copy(update=changes)
    return _with_adapter(results, results.adapter.model_copy(update={"overall": overall}))


def with_suite(results: EvalResults, suite: Suite, **changes: Any) -> EvalResults:
    """The same results, but for some figures of the adapter over a suite."""
    scores: Scores = results.adapter.suites[suite].model_copy(update=changes)
    suites = {**results.adapter.suites, suite: scores}
    return _with_adapter(results, results.adapter.model_copy(update={"suites": suites}))


def without_suite(results: EvalResults, suite: Suite) -> EvalResults:
    """The same results, as if a suite had not been asked."""
    suites = {name: scores for name, scores in results.adapter.suites.items() if name != suite}
    return _with_adapter(results, results.adapter.model_copy(update={"suites": suites}))


def _with_adapter(results: EvalResults, adapter: ModelScores) -> EvalResults:
    return results.model_copy(update={"adapter": adapter})
