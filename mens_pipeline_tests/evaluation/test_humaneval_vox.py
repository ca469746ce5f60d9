"""HumanEval-Vox: its tasks can be solved, its hidden tests tell right from wrong, and no train set contains them."""

import re
from collections import Counter, defaultdict
from itertools import permutations

import pytest

from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.evaluation.benchmark import BenchmarkTask, Difficulty, load_benchmark, tasks_as_pairs
from mens_pipeline.evaluation.requirements import Requirement, unmet
from mens_pipeline.language import analyze, ast
from mens_pipeline.language.interpreter import ErrorClass
from mens_pipeline_tests.evaluation.benches import SHIPPED
from mens_pipeline_tests.evaluation.humaneval import HUMANEVAL, NUM_TASKS, scored
from mens_pipeline_tests.evaluation.trainable import near_to
from mens_pipeline_tests.every import every

_CEILING = 0.4
"""The share of a solution's word n-grams that a row may have; the nearest, its first lines alone, has 39 %."""
_CEILING_BESIDE = 0.25
"""The same for the tasks of the other benchmark, which do not train either."""
_TASKS = every("task", HUMANEVAL.tasks, ids=lambda task: task.id)


def _find_main_requirement(task: BenchmarkTask) -> Requirement:
    return [requirement for requirement in task.spec.requires if requirement.construct_ == task.spec.category][-1]


def _test_names(task: BenchmarkTask) -> list[str]:
    module = analyze(task.tests or "").module
    assert module is not None
    return [d.function.name for d in module.declarations if isinstance(d, ast.Test | ast.Forall)]


def test_the_tasks_are_numbered() -> None:
    """From 1 without a gap, so that a result can name them by number."""
    numbers = [re.match(r"hev_(\d{3})_", task.id) for task in HUMANEVAL.tasks]

    assert [int(number[1]) if number else 0 for number in numbers] == list(range(1, NUM_TASKS + 1))


def test_there_are_tasks_of_three_difficulties() -> None:
    shares = {level: count / NUM_TASKS for level, count in _count_difficulties().items()}

    assert 0.3 <= shares[Difficulty.EASY] <= 0.5
    assert 0.3 <= shares[Difficulty.MEDIUM] <= 0.5
    assert 0.1 <= shares[Difficulty.HARD] <= 0.3


def _count_difficulties() -> Counter[Difficulty]:
    return Counter(task.spec.difficulty for task in HUMANEVAL.tasks)


def test_ids_prompts_and_solutions_are_unique() -> None:
    tasks = (*HUMANEVAL.tasks, *load_benchmark(SHIPPED).tasks)

    for texts in ([task.id for task in tasks], [task.spec.description for task in tasks], [t.solution for t in tasks]):
        assert [text for text, count in Counter(texts).items() if count > 1] == []


def test_names_of_hidden_tests_are_unique() -> None:
    counts = Counter(name for task in HUMANEVAL.tasks for name in _test_names(task))

    assert [name for name, count in counts.items() if count > 1] == []


def test_tasks_name_every_file_of_the_folder() -> None:
    named = {name for task in HUMANEVAL.tasks for name in task.spec.files()}
    found = {path.relative_to(HUMANEVAL.folder).as_posix() for path in HUMANEVAL.folder.rglob("*.vox*")}

    assert found == named


@_TASKS
def test_the_prompt_names_the_required_declarations(task: BenchmarkTask) -> None:
    asked = _find_main_requirement(task)

    assert [name for name in (r.name for r in task.spec.requires) if name and name not in task.spec.description] == []
    assert [part for part in (*(asked.params or ()), asked.returns or "") if part not in task.spec.description] == []


_SAME_IDEA = {("hev_003_is_square_number", "hev_126_whole_root"), ("hev_042_merge_ordered", "hev_127_merge_queues")}
"""A plain task, and one that asks for the same with contracts."""


@_TASKS
def test_tasks_never_train_and_have_no_warnings(task: BenchmarkTask) -> None:
    assert task.spec.never_train
    assert analyze(task.solution).diagnostics == ()
    assert analyze(task.tests or "").diagnostics == ()


@_TASKS
def test_the_reference_solves_its_task(task: BenchmarkTask) -> None:
    report = scored(task, task.solution)

    assert [(test.name, test.message) for test in report.tests if not test.passed] == []
    assert [test.name for test in report.tests if not test.num_assertions] == []
    assert report.passed
    assert len(report.tests) >= 5


@pytest.mark.slow
@_TASKS
def test_wrong_completions_fail(task: BenchmarkTask) -> None:
    modules = [analyze(completion).module for completion in task.wrong]
    lacking = [
        None if module is None else unmet(task.spec.requires, module, completion)
        for module, completion in zip(modules, task.wrong, strict=True)
    ]
    classes = [scored(task, completion).error_class for completion in task.wrong]

    assert len(set(task.wrong)) == len(task.wrong) >= 3
    assert lacking == [()] * len(task.wrong)
    assert set(classes) <= {ErrorClass.WRONG_ANSWER, ErrorClass.RUNTIME}


@_TASKS
def test_a_completion_of_defaults_fails(task: BenchmarkTask) -> None:
    empty = re.sub(r"\breturn\b[^\n]*", "return None", task.solution)

    assert not scored(task, empty).passed


def test_no_solution_solves_another_task() -> None:
    modules = {task.id: analyze(task.solution).module for task in HUMANEVAL.tasks}
    solved = {
        (task.id, other.id)
        for task, other in permutations(HUMANEVAL.tasks, 2)
        if (module := modules[other.id]) is not None and not unmet(task.spec.requires, module, other.solution)
    }

    assert solved == set()


@pytest.mark.slow
def test_no_solution_solves_another_task_under_its_name() -> None:
    alike: defaultdict[object, list[BenchmarkTask]] = defaultdict(list)
    for task in HUMANEVAL.tasks:
        asked = _find_main_requirement(task)
        types = tuple(param.split(":")[-1] for param in asked.params or ())
        alike[task.spec.category, types, asked.returns].append(task)
    pairs = [pair for group in alike.values() for pair in permutations(group, 2)]
    solved = {(task.id, other.id) for task, other in pairs if scored(task, _rename(task, other)).passed}

    assert len(pairs) > NUM_TASKS
    assert solved == _SAME_IDEA


def _rename(task: BenchmarkTask, other: BenchmarkTask) -> str:
    return re.sub(rf"\b{_find_main_requirement(other).name}\b", str(_find_main_requirement(task).name), other.solution)


@pytest.mark.nightly
def test_no_row_that_may_train_is_near_a_task(trainable_rows: list[TrainingPair]) -> None:
    assert len(trainable_rows) > 4000
    assert near_to(HUMANEVAL, trainable_rows, _CEILING) == set()
    assert near_to(HUMANEVAL, tasks_as_pairs(load_benchmark(SHIPPED)), _CEILING_BESIDE) == set()
