"""Training rows that solve held-out or benchmark tasks."""

import time

import pytest

from mens_pipeline.corpus.behaviour.repeats import TaskFunctions
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.language.interpreter import with_given
from mens_pipeline_tests.corpus.rows import pair_at

_TESTS = """@test fn t1() { assert(spent([4, 90, 5], 10) is 9) }
@test fn t2() { assert(spent([10, 11], 10) is 10) }
@test fn t3() { assert(spent([], 3) is 0) }
"""
_TASK = pair_at(
    "held.vox",
    "q",
    "fn spent(prices: List[int], limit: int) to int { return total(prices.filter(p => p <= limit)) }\n"
    "fn total(xs: List[int]) to int { let mut sum = 0 for x in xs { sum = sum + x } return sum }\n",
).model_copy(update={"tests": _TESTS})
_LOOP = """fn count(values: list[int], border: int) to int {
    let mut result = 0
    for now in values { if not (now > border) { result += now } }
    result
}
"""


def _find_repeats(workers: BehaviourWorkers, *responses: str, task: TrainingPair = _TASK) -> list[str | None]:
    rows = [pair_at("train.vox", "p", response) for response in responses]
    return TaskFunctions([task], workers).find_repeats(rows)


def test_a_copy_is_found_under_any_name_and_form(workers: BehaviourWorkers) -> None:
    inside = f'type T {{ a: int }}\n\nfn greet(name: str) to str {{ return "Hello, " + name }}\n\n{_LOOP}'
    tool = f'@mcp.tool "adds" {_LOOP}'

    assert _find_repeats(workers, _LOOP, inside, tool, _LOOP) == ["held.vox"] * 4


@pytest.mark.parametrize(
    "response",
    [
        _LOOP.replace("now > border", "now >= border"),
        _LOOP.replace("values: list[int], border: int", "border: int, values: list[int]"),
        _LOOP.replace("to int", "to Option[int]"),
        "fn total(xs: List[int]) to int { let mut sum = 0 for x in xs { sum = sum + x } return sum }",
        "fn nothing() to int { return 1 }",
        "type T { a: int }",
        "fn rejected(",
    ],
)
def test_other_functions_are_left_alone(workers: BehaviourWorkers, response: str) -> None:
    assert _find_repeats(workers, response) == [None]


def test_a_helper_that_tests_call_as_well_is_not_the_task(workers: BehaviourWorkers) -> None:
    helped = _TASK.model_copy(update={"tests": _TESTS + "@test fn t4() { assert(total([1, 2]) is 3) }"})
    total = "fn total(xs: List[int]) to int { let mut sum = 0 for x in xs { sum = sum + x } return sum }"
    both = pair_at(
        "both.vox",
        "q",
        "fn even(n: int) to bool { if n < 1 { return n is 0 } return odd(n - 1) }\n"
        "fn odd(n: int) to bool { if n < 1 { return false } return even(n - 1) }\n",
    ).model_copy(update={"tests": "@test fn t() { assert(even(4)) assert(odd(3)) assert(not even(1) and not odd(2)) }"})

    assert _find_repeats(workers, total, _LOOP, task=helped) == [None, "held.vox"]
    assert TaskFunctions([both], workers).account()["compared"] == 2


def test_types_of_any_depth_are_compared(workers: BehaviourWorkers) -> None:
    deep = f"fn f(xs: {'List[' * 1_200}int{']' * 1_200}, n: int) to int {{ return n }}"

    assert _find_repeats(workers, deep) == [None]


def test_type_parameters_count_as_ints(workers: BehaviourWorkers) -> None:
    general = _LOOP.replace("count(values: list[int], border: int)", "count<T>(values: list[T], border: T)")

    assert _find_repeats(workers, general) == ["held.vox"]


def test_given_code_of_rows_and_tasks_is_used(workers: BehaviourWorkers) -> None:
    helper = "fn keep(x: int, most: int) to bool { return x <= most }"
    part = _LOOP.replace("not (now > border)", "keep(now, border)")
    row = pair_at("train.vox", "p", part).model_copy(update={"tests": with_given(helper, _TESTS)})

    assert TaskFunctions([_TASK], workers).find_repeats([row]) == ["held.vox"]
    assert _find_repeats(workers, part) == [None]
    task = row.model_copy(update={"tests": with_given(helper, _TESTS.replace("spent", "count"))})
    assert _find_repeats(workers, _LOOP, task=task) == ["train.vox"]


def test_only_tasks_with_meaningful_tests_are_compared(workers: BehaviourWorkers) -> None:
    trivial = _TASK.model_copy(update={"tests": _TESTS.splitlines()[2]})
    own = _TASK.model_copy(update={"tests": _TESTS + "fn total(xs: List[int]) to int { return 0 }\n", "source": None})
    prose = _TASK.model_copy(update={"response_mode": "prose_only"})
    script = pair_at("a.vox.ui", "p", _TASK.response).model_copy(update={"tests": _TESTS})
    plain = pair_at("held.vox", "p", _LOOP)
    tasks = TaskFunctions([trivial, own, own, prose, script, plain], workers)

    assert tasks.account() == {"compared": 1, "trivial": 1, "reference_fails": 0, "without_tests": 3}
    assert tasks.find_repeats([plain]) == ["a row without a source"]


def test_without_tasks_nothing_is_repeated(workers: BehaviourWorkers) -> None:
    assert TaskFunctions([], workers).find_repeats([_TASK]) == [None]


def test_many_tasks_of_one_signature_are_distinguished(workers: BehaviourWorkers) -> None:
    tasks = [
        pair_at(f"{n}.vox", "q", f"fn f{n}(n: int) to int {{ return n * {n} }}").model_copy(
            update={"tests": f"@test fn a() {{ assert(f{n}(2) is {2 * n}) assert(f{n}(3) is {3 * n}) }}"}
        )
        for n in range(2, 100)
    ]
    rows = [pair_at(None, "p", f"fn g(a: int) to int {{ return {n} * a }}") for n in (2, 99, 100)]
    functions = TaskFunctions(tasks, workers)

    assert functions.account()["compared"] == 98
    assert functions.find_repeats(rows) == ["2.vox", "99.vox", None]


def test_comparing_is_fast(workers: BehaviourWorkers) -> None:
    """A generous bound for 200 functions and 50 tasks of their signature."""
    tasks = [
        _TASK.model_copy(update={"tests": _TESTS + f"@test fn extra() {{ assert(spent([{n}], {n}) is {n}) }}"})
        for n in range(50)
    ]
    functions = TaskFunctions(tasks, workers)
    rows = [pair_at(None, "p", _LOOP.replace("result = 0", f"result = {n}")) for n in range(1, 201)]
    began = time.monotonic()

    assert functions.find_repeats(rows) == [None] * 200
    assert time.monotonic() - began < 30
