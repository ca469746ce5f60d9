"""`mens score` and `mens export-tasks`: the benchmark for other programs that ask models."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mens_pipeline.cli.terminal import say, tell

if TYPE_CHECKING:
    from mens_pipeline.evaluation.judge import Judgement

_BENCH = Annotated[
    Path | None, typer.Option("--bench", metavar="DIR", help="A benchmark [default: VOX_BENCHMARK_DIR, else ours].")
]


class Framework(StrEnum):
    """Framework that runs the tasks."""

    INSPECT = "inspect"
    VERIFIERS = "verifiers"


def score(
    answers: Annotated[Path, typer.Argument(metavar="FILE", help="Answers to tasks of a benchmark, one JSON a line.")],
    *,
    bench: _BENCH = None,
) -> None:
    """Judge answers that another program let a model write, and run their hidden tests in the sandbox.

    A line is {"task": ID, "text": TEXT, "stopped": BOOL}: the id of the task in the manifest, all that was written, and
    whether the model ended its turn. Prints a line of JSON for each, in order, and how many pass.

    Exit code 0: judged, whatever came of it. 1: a line is no answer to a task. 2: the command was misused.
    """
    from mens_pipeline.evaluation.benchmark import load_benchmark
    from mens_pipeline.evaluation.written import judge_written, read_written
    from mens_pipeline.settings import load_settings

    written = read_written(answers)
    benchmark = load_benchmark(bench or load_settings().benchmark_dir)
    categories = {task.id: task.spec.category for task in benchmark.tasks}
    judged = judge_written(benchmark, written)
    for one, judgement in zip(written, judged, strict=True):
        typer.echo(json.dumps(_record(judgement, one.task, categories[one.task])))
    tell(f"{sum(judgement.passed for judgement in judged)} of {len(judged)} answers pass")


def _record(judgement: "Judgement", task: str, asked: str) -> dict[str, Any]:
    from mens_pipeline.promotion.report.answers import faults_of

    return {
        "task": task,
        "sample": judgement.sample,
        "passed": judgement.passed,
        "parses": judgement.parses,
        "resolves": judgement.resolves,
        "passes_tests": judgement.passes_tests if judgement.has_tests else None,
        "faults": list(faults_of(judgement, asked)),
    }


def export_tasks(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    *,
    to: Annotated[Framework, typer.Option("--to", help="What will run the tasks.")],
    bench: _BENCH = None,
) -> None:
    """Write a benchmark as an environment of inspect-ai or verifiers, so that anybody can ask any model its tasks.

    The folder holds prompts.jsonl with the names of the hidden tests, the benchmark, the module for the framework, its
    scorer, which calls `mens score`, and a README.md with the command that runs it.

    Exit code 0: written. 2: the command was misused, or the folder is there already.
    """
    from mens_pipeline.delivery.environment import write_environment
    from mens_pipeline.evaluation.benchmark import load_benchmark
    from mens_pipeline.settings import load_settings

    benchmark = load_benchmark(bench or load_settings().benchmark_dir)
    write_environment(benchmark, str(to), folder)
    say(str(folder))
    tell(f"{len(benchmark.tasks)} tasks; {folder / 'README.md'} says how to run them")
