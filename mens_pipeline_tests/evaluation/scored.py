"""Small tasks, answers and evaluations."""

from collections.abc import Iterable, Sequence
from typing import Any

from mens_pipeline.evaluation.evaluate import Evaluation, evaluate_completions
from mens_pipeline.evaluation.requirements import Requirement
from mens_pipeline.evaluation.results import EvalResults, InsertScore, Progress, ScoredCompletion, Subject
from mens_pipeline.evaluation.scores import ModelScores, Score, Scores
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.inference.generation import Completion, Decoding, Syntax
from mens_pipeline.language import Mode

GOOD = "fn add(a: int, b: int) to int {\n    return a + b\n}\n"
BROKEN = "fn add(a: int, b: int) to int {\n    return a +\n}\n"
OTHER = "type Point {\n    x: int\n}\n"

PROGRESS = Progress(attempt=1, round=1, num_rounds=1, num_reserve=0, try_sha256="7" * 64, store_id="5" * 32)
SUBJECT = Subject(
    adapter_sha256="ad" * 32,
    base_sha256="ba" * 32,
    base_model="tiny",
    heldout_sha256="cd" * 32,
    benchmark_sha256="be" * 32,
)
WRONG_PIECE = InsertScore(
    model="adapter",
    task="infill/0000",
    kind="line",
    file="a.vox",
    piece="n",
    exact=False,
    kept=0,
    similarity=0.5,
    parses=True,
    resolves=True,
    passes_tests=False,
    stopped=True,
    likelihood=-0.5,
    before="",
    reference="n + 1",
    after="",
)


def task(number: int = 0, suite: Suite = Suite.HELDOUT, **changes: Any) -> Task:
    """A task that asks for the function `add`, with changes."""
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


def heldout_files(*sizes: int) -> tuple[Task, ...]:
    """Held-out tasks of files, with the given number of tasks each."""
    return tuple(
        task(100 * number + place, file=f"{number}.vox") for number, size in enumerate(sizes) for place in range(size)
    )


def needs(construct: str, **keys: Any) -> Requirement:
    return Requirement.model_validate({"construct": construct, **keys})


def completion(text: str = GOOD, to: Task | None = None, sample: int = 0, *, stopped: bool = True) -> Completion:
    """An answer of seven tokens."""
    return Completion(task=(to or task()).id, sample=sample, text=text, num_tokens=7, stopped=stopped)


def answers_to(tasks: Sequence[Task], texts: Iterable[str]) -> tuple[Completion, ...]:
    """One answer to each task."""
    return tuple(completion(text, to) for to, text in zip(tasks, texts, strict=True))


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
    tries = (completion(text, to) for text, to in zip(second, tasks, strict=False) if text is not None)
    again = tuple(a.model_copy(update={"constrained": True, "forced": n == 0}) for n, a in enumerate(tries))
    completions = {"base": answers_to(tasks, base), "adapter": (*answers_to(tasks, adapter), *again)}
    if champion is not None:
        completions["champion"] = answers_to(tasks, champion)
    decoding = Decoding(syntax=Syntax.FALLBACK if second else Syntax.FREE)
    used = ("c" * 64, "cc" * 32) if champion is not None else None
    return evaluate_completions(tasks, completions, SUBJECT, decoding, PROGRESS, champion=used)


def scored_completions(evaluated: Evaluation) -> tuple[ScoredCompletion, ...]:
    """The lines of `scored_completions.jsonl`."""
    by_id = {task.id: task for task in evaluated.tasks}
    return (
        *(_score("base", by_id[score.task], score) for score in evaluated.base),
        *(_score("few_shot", by_id[score.task], score) for score in evaluated.few_shot),
        *(_score("adapter", by_id[score.task], score) for score in evaluated.adapter),
        *(_score("fallback", by_id[score.task], score) for score in evaluated.fallback),
    )


def _score(model: Any, of: Task, score: Score) -> ScoredCompletion:
    return ScoredCompletion(
        model=model,
        suite=of.suite,
        prompt=of.prompt,
        asked=of.construct,
        difficulty=of.difficulty,
        reference=of.reference,
        score=score,
    )


def with_overall(results: EvalResults, **changes: Any) -> EvalResults:
    """The same results with changed figures of the adapter over all suites."""
    overall = results.adapter.overall.model_copy(update=changes)
    return _with_adapter(results, results.adapter.model_copy(update={"overall": overall}))


def with_suite(results: EvalResults, suite: Suite, **changes: Any) -> EvalResults:
    """The same results with changed figures of the adapter over a suite."""
    scores: Scores = results.adapter.suites[suite].model_copy(update=changes)
    suites = {**results.adapter.suites, suite: scores}
    return _with_adapter(results, results.adapter.model_copy(update={"suites": suites}))


def without_suite(results: EvalResults, suite: Suite) -> EvalResults:
    """The same results without a suite."""
    suites = {name: scores for name, scores in results.adapter.suites.items() if name != suite}
    return _with_adapter(results, results.adapter.model_copy(update={"suites": suites}))


def _with_adapter(results: EvalResults, adapter: ModelScores) -> EvalResults:
    return results.model_copy(update={"adapter": adapter})
