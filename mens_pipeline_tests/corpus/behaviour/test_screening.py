"""Functions tried on the hidden tests of tasks."""

from mens_pipeline.corpus.behaviour.screening import Screening, TaskFunction, TaskStatus
from mens_pipeline.language.interpreter import with_given
from mens_pipeline_tests.every import every_row

_REFERENCE = "fn spent(prices: List[int], limit: int) to int {\n    return total(prices.filter(p => p <= limit))\n}\n"
_TOTAL = "fn total(xs: List[int]) to int { let mut sum = 0 for x in xs { sum = sum + x } return sum }\n"
_TESTS = """@test fn t1() { assert(spent([4, 90, 5], 10) is 9) }
@test fn t2() { assert(spent([10, 11], 10) is 10) }
@test fn t3() { assert(spent([], 3) is 0) }
"""
_TASK = TaskFunction(_REFERENCE + _TOTAL, _TESTS, "spent")
_LOOP = """fn count(values: list[int], border: int) to int {
    let mut result = 0
    for now in values { if not (now > border) { result += now } }
    result
}
"""


def _first_passed(program: str, function: str, *tasks: TaskFunction) -> int | None:
    return Screening().first_passed(program, function, tasks or (_TASK,))


def test_an_equivalent_function_passes() -> None:
    assert _first_passed(_REFERENCE + _TOTAL, "spent") == 0
    assert _first_passed(_LOOP, "count") == 0
    renamed = (_REFERENCE + _TOTAL).replace("spent", "s").replace("total", "spent")
    assert _first_passed(renamed, "s") == 0


@every_row(
    (_LOOP.replace("now > border", "now >= border"), "count"),
    (_LOOP.replace("for now in values", "loop { } for now in values"), "count"),
    (_LOOP.replace("result = 0", "result = missing"), "count"),
    (_LOOP, "other"),
    ("let count = 3", "count"),
    ("let x = missing\n" + _LOOP, "count"),
    ("fn count(", "count"),
    ('@ai(model="m") fn count(xs: List[int], n: int) to int', "count"),
)
def test_other_functions_pass_no_task(program: str, function: str) -> None:
    assert _first_passed(program, function) is None


def test_the_first_of_several_tasks_is_returned() -> None:
    other = TaskFunction(
        "fn f(xs: List[int], n: int) to int { return n }", "@test fn t() { assert(f([], 1) is 1) }", "f"
    )

    assert _first_passed(_LOOP, "count", other, _TASK, _TASK) == 1


def test_one_program_is_tried_after_another() -> None:
    screening = Screening()
    programs = [_LOOP.replace(">", ">="), _LOOP, "let missing = x\n" + _LOOP, _LOOP]

    assert [screening.first_passed(program, "count", [_TASK]) for program in programs] == [None, 0, None, 0]


def test_a_task_does_not_depend_on_those_before_it() -> None:
    slow = "fn f(n: int) to int { let mut i = 0 while i < n * 1000 { i += 1 } return i }"
    task = TaskFunction(slow, "@test fn a() { assert(f(3) is 3000) }\n@test fn b() { assert(f(2) is 2000) }", "f")
    screening = Screening()

    assert [screening.status(_TASK), screening.status(task)] == [TaskStatus.COMPARED] * 2
    program = f"let x = f(2)\n{slow}"
    assert [screening.first_passed(program, "f", tasks) for tasks in ([_TASK], [task])] == [None, 0]


def test_tests_that_constants_pass_are_trivial() -> None:
    screening = Screening()
    constant = _TESTS.splitlines()[2]
    identity = "@test fn t1() { assert(spent([9], 9) is 9) }\n@test fn t2() { assert(spent([4], 4) is 4) }"

    assert [screening.status(_TASK), screening.status(_TASK)] == [TaskStatus.COMPARED] * 2
    assert screening.status(TaskFunction(_TASK.reference, constant, "spent")) is TaskStatus.TRIVIAL
    assert screening.status(TaskFunction(_TASK.reference, identity, "spent")) is TaskStatus.TRIVIAL


def test_a_failing_reference_is_reported() -> None:
    screening = Screening()
    wrong = TaskFunction(_REFERENCE.replace("<=", "<") + _TOTAL, _TESTS, "spent")
    broken = TaskFunction("let x = missing\n" + _TASK.reference, _TESTS, "spent")

    assert screening.status(wrong) is TaskStatus.FAILS
    assert screening.status(broken) is TaskStatus.FAILS


def test_a_task_may_contain_given_code() -> None:
    task = TaskFunction(_REFERENCE, with_given(_TOTAL, _TESTS), "spent")

    assert Screening().status(task) is TaskStatus.COMPARED
    assert _first_passed(_LOOP, "count", task) == 0


def test_many_different_results_are_kept_as_few_constants() -> None:
    reference = "fn f(n: int) to int { return n / 2 }"
    task = TaskFunction(reference, "@forall fn t(n: int) { assert(f(n) is n / 2) }", "f")

    assert Screening().status(task) is TaskStatus.COMPARED
