"""The shipped benchmark notices small mistakes, by hidden tests or by its requirements."""

import re
from collections.abc import Iterator

import pytest

from mens_pipeline.evaluation.benchmark import BenchmarkTask, load_benchmark
from mens_pipeline.evaluation.requirements import unmet
from mens_pipeline.language import analyze
from mens_pipeline.language.interpreter import Limits
from mens_pipeline_tests.evaluation.benches import SHIPPED
from mens_pipeline_tests.evaluation.humaneval import scored
from mens_pipeline_tests.evaluation.mutants import Mutant, mutants_of

_TASKS = {task.id: task for task in load_benchmark(SHIPPED).tasks}
_LIMITS = Limits(max_steps=50_000)


def _mutants(task: BenchmarkTask) -> Iterator[Mutant]:
    yield from mutants_of(task.solution, task.spec.mode)
    lines = task.solution.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.strip() in {"", "}"}:  # a brace may be missing at the end of a file
            continue
        for new in {"", re.sub(r"^(\s*\w+\W+)(\w+)", r"\1other", line)} - {line}:
            text = "".join((*lines[:number], new, *lines[number + 1 :]))
            if analyze(text, task.spec.mode).module is not None:
                yield Mutant(text, f"line {number + 1}: {line.strip()!r} -> {new.strip()!r}")


def _is_noticed(task: BenchmarkTask, text: str) -> bool:
    module = analyze(text, task.spec.mode).module
    if module is None or unmet(task.spec.requires, module, text):
        return True
    return task.tests is not None and not scored(task, text, _LIMITS).passed


@pytest.mark.seed_row(41)
@pytest.mark.slow
def test_small_mistakes_are_noticed() -> None:
    """Nine of ten over all tasks, three of four for each but two; the rest may be equivalent to the solution.

    The two use the network and wait for a signal, neither of which the interpreter has.
    """
    mutants = {name: list(_mutants(task)) for name, task in _TASKS.items()}
    survivors = {
        name: [mutant.change for mutant in mutants[name] if not _is_noticed(task, mutant.text)]
        for name, task in _TASKS.items()
    }
    weak = {name for name, left in survivors.items() if len(left) > 0.25 * len(mutants[name])}

    assert weak == {"scheduled_probe", "workflow_signal"}
    assert sum(map(len, survivors.values())) <= 0.1 * sum(map(len, mutants.values())), survivors
