"""The hidden tests of HumanEval-Vox notice small mistakes: they are run against mutants of the solutions."""

import pytest

from mens_pipeline.evaluation.benchmark import BenchmarkTask
from mens_pipeline.language import analyze
from mens_pipeline.language.interpreter import Limits
from mens_pipeline_tests.evaluation.humaneval import HUMANEVAL, scored
from mens_pipeline_tests.evaluation.mutants import Mutant, mutants_of

_LIMITS = Limits(max_steps=50_000)
"""Far more than any reference solution needs, so that endless mutants end soon."""

_ENOUGH = 4
"""Among fewer mutants, one that is equivalent to the solution would weigh too much."""

_PROGRAM = """fn sign(value: int) to str {
    let mut word = "zero"
    if not (value >= 0) and true {
        word = "minus"
    }
    return word
}
"""


def _survivors(task: BenchmarkTask, mutants: list[Mutant]) -> list[str]:
    return [mutant.change for mutant in mutants if scored(task, mutant.text, _LIMITS).passed]


_CHANGES = {
    "line 3: '>=' -> '>'",
    "line 3: '0' -> '1'",
    "line 3: '0' -> '-1'",
    "line 3: 'and' -> 'or'",
    "line 3: 'true' -> 'false'",
    "line 3: 'not' -> ''",
    "line 3: 'not (value >= 0) and true' -> 'not (not (value >= 0) and true)'",
    "line 2: '\"zero\"' -> '\"\"'",
    "line 4: 'word = \"minus\"' -> ''",
    "line 6: 'return word' -> ''",
    "line 6: 'word' -> '\"\"'",
}


def test_mutants_parse_and_differ_from_the_program() -> None:
    mutants = mutants_of(_PROGRAM)

    assert {mutant.change for mutant in mutants} >= _CHANGES
    assert len({_PROGRAM, *(mutant.text for mutant in mutants)}) == len(mutants) + 1
    assert [mutant.change for mutant in mutants if not analyze(mutant.text).ok] == []


@pytest.mark.nightly
def test_hidden_tests_notice_small_mistakes() -> None:
    """Nine of ten mutants over all tasks, three of four for each; the rest may be equivalent to the solution."""
    mutants = {task.id: mutants_of(task.solution) for task in HUMANEVAL.tasks}
    survivors = {task.id: _survivors(task, mutants[task.id]) for task in HUMANEVAL.tasks}
    num_mutants = sum(map(len, mutants.values()))
    num_survivors = sum(map(len, survivors.values()))
    weak = {
        name: left
        for name, left in survivors.items()
        if len(mutants[name]) >= _ENOUGH and len(left) > 0.25 * len(mutants[name])
    }

    assert weak == {}
    assert num_survivors <= 0.1 * num_mutants, survivors
