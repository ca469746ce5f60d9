"""`mens score`, `mens export-tasks` and `mens grammar`: benchmark and grammar for other programs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mens_pipeline.cli.options import REQUIRED, argument, declare_options, option, switch
from mens_pipeline.cli.terminal import log_line, print_line
from mens_pipeline.language.grammar.export import GrammarFormat, grammar_text
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.jsonl import write_text

if TYPE_CHECKING:
    from mens_pipeline.evaluation.scores import Score


_BENCH = Annotated[
    Path | None,
    typer.Option("--bench", metavar="DIR", help="A benchmark [default: VOX_BENCHMARK_DIR, else the packaged one]."),
]


@declare_options
def score(
    *,
    completions: Path = argument("Completions of benchmark tasks, as JSON lines.", metavar="FILE"),
    bench: _BENCH = None,
) -> None:
    """Score completions that another program generated, and run their hidden tests in the sandbox.

    A line is {"task": ID, "text": TEXT, "stopped": BOOL}: id of the task in the manifest, completion, and whether the
    model ended its turn. Prints a JSON line for each, in order, and the number that passes.

    Exit code 0: scored. 1: a line is not a completion of a task. 2: the command was misused.
    """
    from mens_pipeline.evaluation.benchmark import load_benchmark
    from mens_pipeline.evaluation.trial import read_written, score_written

    written = read_written(completions)
    benchmark = load_benchmark(bench or load_settings().benchmark_dir)
    categories = {task.id: task.spec.category for task in benchmark.tasks}
    evaluated = score_written(benchmark, written)
    for one, completion_score in zip(written, evaluated, strict=True):
        typer.echo(json.dumps(_record(completion_score, one.task, categories[one.task])))
    log_line(f"{sum(completion_score.passed for completion_score in evaluated)} of {len(evaluated)} completions pass")


def _record(completion_score: "Score", task: str, asked: str) -> dict[str, Any]:
    from mens_pipeline.promotion.report.completions import find_faults

    return {
        "task": task,
        "sample": completion_score.sample,
        "passed": completion_score.passed,
        "parses": completion_score.parses,
        "resolves": completion_score.resolves,
        "passes_tests": completion_score.passes_tests if completion_score.has_tests else None,
        "faults": list(find_faults(completion_score, asked)),
    }


@declare_options
def export_tasks(
    *,
    folder: Path = argument("A new folder.", metavar="DIR"),
    to: Literal["inspect", "verifiers"] = option(REQUIRED, "The framework."),
    bench: _BENCH = None,
) -> None:
    """Write a benchmark as an environment of inspect-ai or verifiers, to evaluate any model on it.

    The folder holds prompts.jsonl with the names of the hidden tests, the benchmark, a module for the framework with
    a scorer that calls `mens score`, and a README.md with the command that runs it.

    Exit code 0: written. 2: the command was misused, or the folder exists already.
    """
    from mens_pipeline.delivery.environment import write_environment
    from mens_pipeline.evaluation.benchmark import load_benchmark

    benchmark = load_benchmark(bench or load_settings().benchmark_dir)
    write_environment(benchmark, to, folder)
    print_line(str(folder))
    log_line(f"{len(benchmark.tasks)} tasks; {folder / 'README.md'} says how to run them")


@declare_options
def grammar(
    *,
    notation: GrammarFormat = option(
        GrammarFormat.LARK, "`lark` for llguidance, vLLM and SGLang, `gbnf` for llama.cpp.", "--format"
    ),
    is_ui: bool = switch("For `.vox.ui` files instead of `.vox` files.", "--ui"),
    output: Path | None = option(None, "File for the grammar [default: stdout].", "-o", "--output", metavar="FILE"),
) -> None:
    """Print a grammar of Vox for engines that constrain a model to a grammar.

    `mens check` accepts every program that the grammar accepts, but not vice versa: the grammar covers programs in the
    layout of the formatter. Its first comment lists the omissions.

    Exit code 0: printed. 2: the command was misused.
    """
    text = grammar_text(notation, is_ui=is_ui)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_text(output, text)
    log_line(f"{output}: {notation} grammar of {'.vox.ui' if is_ui else '.vox'} files, {text.count(chr(10))} lines")
