"""Answers that another program let a model write, judged as our own are."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.evaluate import judge_all
from mens_pipeline.evaluation.judge import Judgement
from mens_pipeline.evaluation.tasks import benchmark_tasks
from mens_pipeline.inference.generation import Answer
from mens_pipeline.storage.jsonl import models_in, open_rows

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
