"""The adapter of a run alone on a benchmark alone: a trial, which no verdict rests on."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.best_of import best_of
from mens_pipeline.evaluation.eval_results import answers_of, judged_answer
from mens_pipeline.evaluation.evaluate import judge_all
from mens_pipeline.evaluation.results import BestOf, JudgedAnswer
from mens_pipeline.evaluation.scores import Scores, scores_of_model
from mens_pipeline.evaluation.tasks import benchmark_tasks
from mens_pipeline.inference.generation import as_served
from mens_pipeline.inference.prepare import KIND, Conditions, PreparedGeneration, generated, prepare_generation
from mens_pipeline.storage.store import ArtifactStore

TRIAL: Final = "trial_answers.jsonl"


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a trial.

    Attributes:
        scores: The figures.
        best_of: Those of best-of-n; None with one answer to each request.
        answers: Every answer with what is to be said of it.
        num_too_long: Tasks that were not asked because not even their reference fits into an answer.
    """

    scores: Scores
    best_of: BestOf | None
    answers: tuple[JudgedAnswer, ...]
    num_too_long: int


def try_adapter(  # noqa: PLR0913 - what a trial is made from
    run: Path,
    benchmark: Benchmark,
    fits: Callable[[str], bool],
    conditions: Conditions,
    store: ArtifactStore,
    *,
    launch: Callable[[PreparedGeneration], int],
) -> Trial:
    """Let the adapter alone answer a benchmark.

    Args:
        run: The folder with `adapter/` and its training manifest.
        benchmark: What it is asked.
        fits: Whether a text is short enough for an answer.
        conditions: Under which it answers.
        store: Where answers are kept.
        launch: Runs a generation process and returns its exit code.

    Raises:
        RefusedError: The run is not complete, the model could not answer, or no reference fits.
    """
    every = benchmark_tasks(benchmark)
    tasks = tuple(task for task in every if fits(task.reference))
    if not tasks:
        raise RefusedError(f"{benchmark.folder}: no reference answer fits the limit. Raise --max-tokens.")
    work = store.root / KIND / f".work-{time.time_ns()}-trial"
    prepared = prepare_generation("adapter", run, tasks, conditions, work)
    served = as_served(answers_of([generated(prepared, store, launch)[0]]))
    judged = judge_all(tasks, served)
    by_id = {task.id: task for task in tasks}
    return Trial(
        scores=scores_of_model(tasks, judged).overall,
        best_of=best_of(tasks, served, judged),
        answers=tuple(judged_answer("adapter", by_id[judgement.task], judgement) for judgement in judged),
        num_too_long=len(every) - len(tasks),
    )
