"""Tasks from held-out pairs, synthetic pairs and benchmarks."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.validated_pairs import make_pairs
from mens_pipeline.corpus.schema.records import Lane, TrainingPair
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.judge import judge
from mens_pipeline.evaluation.tasks import (
    FAMILIES,
    Suite,
    Task,
    benchmark_tasks,
    family_tasks,
    heldout_tasks,
    sample_with_tests,
)
from mens_pipeline.language import Mode
from mens_pipeline_tests.corpus.rows import records_of, source_at
from mens_pipeline_tests.evaluation.benches import task as spec
from mens_pipeline_tests.evaluation.benches import write_bench
from mens_pipeline_tests.evaluation.scored import GOOD, completion
from mens_pipeline_tests.language.examples import golden_programs


def _pair(**changes: Any) -> TrainingPair:
    values = {"prompt": "Write `add`.", "response": GOOD, "category": "function", "difficulty": 2, **changes}
    return TrainingPair(**values)


def test_a_heldout_pair_is_a_task() -> None:
    (task,) = heldout_tasks([_pair()])

    assert (task.id, task.suite, task.prompt, task.reference) == ("heldout/0000", Suite.HELDOUT, "Write `add`.", GOOD)
    assert (task.construct, task.name, task.difficulty, task.mode) == ("function", "add", "easy", Mode.SOURCE)
    assert (task.requires, task.tests) == ((), None)


def test_pairs_without_code_are_not_tasks() -> None:
    others = ({"response_mode": "prose_only"}, {"lane": Lane.DOCS_QA}, {"category": "documentation"})
    tasks = heldout_tasks([*(_pair(**changes) for changes in others), _pair()])

    assert [task.id for task in tasks] == ["heldout/0003"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"prompt": "Add two numbers."}, None),
        ({"prompt": "Write addition."}, None),
        ({"prompt": "Write add, please."}, "add"),
        ({"prompt": "Write `add`.", "response": f"fn helper() {{ }}\n{GOOD}"}, "add"),
        ({"prompt": "Write `add`.", "response": "type add {\n    x: int\n}\n"}, None),
        ({"prompt": "Write routes.", "response": "routes { }", "category": "routes"}, None),
        ({"prompt": "Write `add`.", "response": "fn add( {"}, None),
        (
            {
                "prompt": "Write an index `T.by_a`.",
                "response": "@table type T { a: int }\n@index T.by_a on (a)",
                "category": "index",
            },
            "T.by_a",
        ),
    ],
)
def test_a_name_is_required_if_the_prompt_contains_it(changes: dict[str, Any], name: str | None) -> None:
    (task,) = heldout_tasks([_pair(**changes)])

    assert task.name == name


def test_difficulties_come_in_three_bands() -> None:
    tasks = heldout_tasks([_pair(difficulty=difficulty) for difficulty in (1, 3, 4, 6, 7)])

    assert [task.difficulty for task in tasks] == ["easy", "easy", "medium", "medium", "hard"]


_TESTS = '@test("sum") fn hidden() to Unit { assert(add(1, 2) is 3) }\n'


def test_a_task_has_the_hidden_tests_of_its_pair() -> None:
    helper = "fn one() to int {\n    return 1\n}"
    plain, helped, bare = heldout_tasks([_pair(tests=_TESTS), _pair(tests=f"{helper}\n\n{_TESTS}"), _pair()])

    assert (plain.tests, plain.given) == (_TESTS, "")
    assert (helped.tests, helped.given) == (f"{helper}\n\n{_TESTS}", helper)
    assert (bare.tests, bare.given) == (None, "")


@pytest.mark.parametrize("tests", ["@test fn hidden( {", "fn hidden() { }"], ids=["rejected", "no test"])
def test_unusable_hidden_tests_are_named(tests: str) -> None:
    with pytest.raises(ConfigurationError, match=r"heldout/0001: hidden tests"):
        heldout_tasks([_pair(), _pair(tests=tests)])


def test_synthetic_pairs_are_tasks_of_two_suites() -> None:
    rows = [
        _pair(prompt=f"Write `add`, number {n}.", task_family=suite, tests=_TESTS)
        for n in range(6)
        for suite in FAMILIES
    ]
    tasks = family_tasks(rows, 2)

    assert [task.suite for task in tasks] == [*[Suite.NEW_CONSTANTS] * 2, *[Suite.UNKNOWN_TASK] * 2]
    assert {task.prompt for task in tasks} == {task.prompt for task in family_tasks(rows[::-1], 2)}
    assert len(family_tasks(rows, 99)) == 12


def test_synthetic_prose_is_skipped_and_an_unknown_family_is_refused() -> None:
    assert family_tasks([_pair(task_family="unknown_task", response_mode="prose_only")], 2) == ()
    with pytest.raises(ConfigurationError, match=r"found task_family 'task'\. Expected new_constants"):
        family_tasks([_pair(task_family="task")], 2)


def test_the_source_sets_the_mode() -> None:
    (task,) = heldout_tasks([_pair(response="state n: int = 0", source=source_at("a.vox.ui"))])

    assert task.mode is Mode.UI


def test_a_benchmark_task_has_the_fields_of_its_manifest(tmp_path: Path) -> None:
    bench = write_bench(tmp_path, spec(tests="tests.vox", difficulty="hard"))
    (bench / "tests.vox").write_text('@test("one") fn check() { assert(one() is 1) }\n')
    (task,) = benchmark_tasks(load_benchmark(bench))

    assert (task.id, task.suite, task.difficulty) == ("benchmark/fn_one", Suite.BENCHMARK, "hard")
    assert (task.construct, task.name, task.mode) == ("function", "one", Mode.SOURCE)
    assert task.prompt == "Write a function `one` that returns 1."
    assert task.tests is not None
    assert task.requires[0].returns == "int"


@pytest.mark.parametrize(
    "changes", [{"requires": [{"construct": "function"}]}, {"category": "puzzles"}], ids=["no name", "of another kind"]
)
def test_a_benchmark_task_may_leave_the_name_open(tmp_path: Path, changes: dict[str, Any]) -> None:
    (task,) = benchmark_tasks(load_benchmark(write_bench(tmp_path, spec(**changes))))

    assert task.name is None


@pytest.mark.slow
def test_every_reference_passes_its_task() -> None:
    records = [record for name, program in golden_programs().items() for record in records_of(program, name)]
    with BehaviourWorkers() as workers:
        tasks = heldout_tasks(make_pairs(records, workers))

    assert len(tasks) > 1_000
    scored = [judge(task, completion(task.reference, task)) for task in tasks]
    assert [score.task for score in scored if not score.passed] == []
    assert [(score.task, score.semantic_error) for score in scored if not score.resolves] == []


def _draw(num_tested: int, num_others: int) -> tuple[Task, ...]:
    tasks = heldout_tasks([_pair(prompt=f"Write `add`, {n}.") for n in range(num_tested + num_others)])
    return tuple(replace(task, tests="tests" if n < num_tested else None) for n, task in enumerate(tasks))


@pytest.mark.parametrize(("number", "expected"), [(1, 6), (6, 6), (9, 9), (30, 20), (None, 20)])
def test_a_sample_holds_all_tasks_with_hidden_tests(number: int | None, expected: int) -> None:
    tasks = _draw(6, 14)
    sample = sample_with_tests(tasks, number)

    assert len(sample) == expected
    assert sample[:6] == tasks[:6]
    assert list(sample) == [task for task in tasks if task in sample] == list(sample_with_tests(tasks, number))


def test_a_sample_holds_every_suite() -> None:
    held, bench = _draw(5, 5), tuple(replace(task, suite=Suite.BENCHMARK, id=f"b{task.id}") for task in _draw(0, 10))

    assert Counter(task.suite for task in sample_with_tests((*held, *bench), 8)) == {
        Suite.HELDOUT: 5,
        Suite.BENCHMARK: 4,
    }
