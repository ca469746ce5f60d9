"""One model alone on a benchmark alone, or answers that another program wrote: trials, which no verdict rests on."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.corpus.evolution.requests import Generator, Ledger
from mens_pipeline.corpus.evolution.requests import Request as Asking
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.best_of import best_of
from mens_pipeline.evaluation.eval_results import answers_of, judged_answer
from mens_pipeline.evaluation.evaluate import judge_all
from mens_pipeline.evaluation.judge import Judgement
from mens_pipeline.evaluation.results import BestOf, JudgedAnswer
from mens_pipeline.evaluation.scores import ModelScores, scores_of_model
from mens_pipeline.evaluation.tasks import Task, benchmark_tasks
from mens_pipeline.inference.generation import Answer, Decoding, as_served
from mens_pipeline.inference.prepare import KIND, Conditions, PreparedGeneration, generated, prepare_generation
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.storage.jsonl import models_in, open_rows
from mens_pipeline.storage.store import ArtifactStore, key_of

TRIAL: Final = "trial_answers.jsonl"


@dataclass(frozen=True, slots=True)
class Trial:
    """Scores and answers of a trial.

    `best_of` is None with one answer to each prompt; `num_too_long` counts tasks that were not asked because not even
    their reference fits into an answer.
    """

    scores: ModelScores
    best_of: BestOf | None
    answers: tuple[JudgedAnswer, ...]
    num_too_long: int


def try_adapter(  # noqa: PLR0913 - what a trial is made from
    adapter: Adapter,
    benchmark: Benchmark,
    fits: Callable[[str], bool],
    conditions: Conditions,
    store: ArtifactStore,
    *,
    launch: Callable[[PreparedGeneration], int],
) -> Trial:
    """Let the adapter alone answer a benchmark.

    `launch` runs a generation process and returns its exit code.

    Raises:
        RefusedError: The model could not answer, or no reference fits.
    """
    every = benchmark_tasks(benchmark)
    tasks = tuple(task for task in every if fits(task.reference))
    if not tasks:
        raise RefusedError(f"{benchmark.folder}: no reference answer fits the limit. Raise --max-tokens.")
    work = store.root / KIND / f".work-{time.time_ns()}-trial"
    prepared = prepare_generation("adapter", adapter, [task.request for task in tasks], conditions, work)
    served = as_served(answers_of([generated(prepared, store, launch)[0]]))
    return _trial(tasks, served, num_too_long=len(every) - len(tasks))


def try_generator(generator: Generator, benchmark: Benchmark, system: str, decoding: Decoding, ledger: Ledger) -> Trial:
    """Let a model that is not ours answer a benchmark; what the ledger holds already is not asked again.

    Another seed in `decoding` asks anew.

    Raises:
        RefusedError: It does not answer.
    """
    tasks = benchmark_tasks(benchmark)
    return _trial(tasks, answers_by(generator, tasks, system, decoding, ledger), num_too_long=0)


def answers_by(
    generator: Generator, tasks: Sequence[Task], system: str, decoding: Decoding, ledger: Ledger
) -> tuple[Answer, ...]:
    """Let a generator answer tasks; what the ledger holds already is not asked again.

    No two tasks have the same prompt; another seed in `decoding` asks anew.

    Returns:
        All samples of the first task, then those of the next one.

    Raises:
        RefusedError: It does not answer.
    """
    decides = {"by": [generator.name, generator.digest, dict(generator.decoding)], "seed": decoding.seed}

    def asking(task: Task, sample: int) -> Asking:
        key = key_of({**decides, "system": system, "prompt": task.prompt, "sample": sample})
        return Asking(key, system, task.prompt)

    asked = {(task.id, sample): asking(task, sample) for task in tasks for sample in range(decoding.num_samples)}
    open_keys = {request.key: request for request in asked.values() if ledger.find(request.key) is None}
    generator.answer(list(open_keys.values()), ledger.add, lambda: inf)
    answers = []
    for (task_id, sample), request in asked.items():
        reply = ledger.find(request.key)
        assert reply is not None, "a generator with time for all answers all"  # noqa: S101 - our own impossibility
        num_tokens = reply.num_tokens if reply.num_written is None else reply.num_written
        answer = Answer(task=task_id, sample=sample, text=reply.text, num_tokens=num_tokens, stopped=reply.stopped)
        answers.append(answer)
    return tuple(answers)


def _trial(tasks: Sequence[Task], answers: Sequence[Answer], *, num_too_long: int) -> Trial:
    judged = judge_all(tasks, answers)
    by_id = {task.id: task for task in tasks}
    return Trial(
        scores=scores_of_model(tasks, judged),
        best_of=best_of(tasks, answers, judged),
        answers=tuple(judged_answer("adapter", by_id[judgement.task], judgement) for judgement in judged),
        num_too_long=num_too_long,
    )


PREFIX: Final = "benchmark/"
"""Prefix of task ids in our own documents; documents of other tools have none."""


class WrittenAnswer(BaseModel):
    """One answer, by whatever program it was asked for; several to a task are its samples, in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str = Field(description="The id of the manifest.")
    text: str = Field(description="All that was written, a fence around the program included.")
    stopped: bool = Field(description="Whether the model ended its turn, rather than running into a limit.")


def read_written(path: Path) -> list[WrittenAnswer]:
    """Read answers, one JSON document a line.

    Raises:
        SourceNotFoundError: It cannot be read.
        RefusedError: A line is no answer.
    """
    advice = 'Write {"task": ID, "text": TEXT, "stopped": true or false}.'
    with open_rows(path) as lines:
        return list(models_in(lines, path, WrittenAnswer, "answer", advice))


def judge_written(benchmark: Benchmark, written: Iterable[WrittenAnswer]) -> tuple[Judgement, ...]:
    """Judge answers, and run the hidden tests of their tasks.

    Returns:
        A judgement on each, in order.

    Raises:
        RefusedError: There is none, or one answers a task that is not in the benchmark.
    """
    tasks = {task.id: task for task in benchmark_tasks(benchmark)}
    answers, samples = [], Counter[str]()
    for number, one in enumerate(written, start=1):
        name = f"{PREFIX}{one.task}"
        if name not in tasks:
            advice = f"Expected an id of {benchmark.folder / 'manifest.json'}; name its folder with --bench."
            raise RefusedError(f"answer {number}: found no task `{one.task}`. {advice}")
        # Nothing here is told of tokens: who asked knows them.
        answers.append(Answer(task=name, sample=samples[name], text=one.text, num_tokens=0, stopped=one.stopped))
        samples[name] += 1
    if not answers:
        raise RefusedError("found no answer, expected at least one. Write one a line.")
    return judge_all(tuple(tasks.values()), answers)
