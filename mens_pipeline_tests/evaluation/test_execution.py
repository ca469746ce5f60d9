"""Completions are run with hidden tests, and their names are resolved."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.eval_results import write_documents
from mens_pipeline.evaluation.evaluate import evaluate_completions, score_completions, with_sound_tests
from mens_pipeline.evaluation.judge import first_semantic_error, judge, run_hidden_tests
from mens_pipeline.evaluation.results import SCORED_COMPLETIONS, ScoredCompletion
from mens_pipeline.evaluation.scores import Score, compute_scores
from mens_pipeline.evaluation.tasks import Suite, Task, benchmark_tasks, heldout_tasks
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.language import Mode
from mens_pipeline.language.interpreter import ErrorClass
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline_tests.evaluation.benches import SHIPPED
from mens_pipeline_tests.evaluation.humaneval import HUMANEVAL
from mens_pipeline_tests.evaluation.scored import PROGRESS, SUBJECT, answers_to, completion, needs, task

_TESTS = "@test fn hidden_small() { assert(double(2) is 4) }\n@test fn hidden_zero() { assert(double(0) is 0) }\n"
_GOOD = "fn double(n: int) to int { return n * 2 }\n"


def _task(label: str, tests: str | None = _TESTS, **changes: Any) -> Task:
    changes = {"suite": Suite.BENCHMARK, "file": label, "name": "double", "reference": _GOOD, **changes}
    return task(id=label, prompt="Write a function `double`.", tests=tests, **changes)


@pytest.mark.parametrize(
    ("program", "num_passed", "error_class"),
    [
        (_GOOD, 2, None),
        ("fn double(n: int) to int { return n * n }\n", 2, None),
        ("fn double(n: int) to int { return n + 1 }\n", 0, ErrorClass.WRONG_ANSWER),
        ("fn double(n: int) to int { return n / 0 }\n", 0, ErrorClass.RUNTIME),
        ("fn double(n: int) to int { let mut k = n while true { k = k + 1 } return k }\n", 0, ErrorClass.TIMEOUT),
        ('fn double(n: int) to int { return len(std.http.get_text("x")) }\n', 0, ErrorClass.UNSUPPORTED),
        ("fn other(n: int) to int { return n }\n", 0, ErrorClass.RUNTIME),
    ],
    ids=["right", "right here", "wrong", "divides by zero", "never ends", "asks outside", "another name"],
)
def test_a_program_is_classified_by_its_tests(program: str, num_passed: int, error_class: ErrorClass | None) -> None:
    (execution,) = run_hidden_tests([(program, _TESTS)])

    assert (execution.num_passed, execution.error_class) == (num_passed, error_class)
    assert execution.passed == (error_class is None)
    assert bool(execution.message) == (error_class is not None)


def test_a_lone_surrogate_in_a_message_can_be_written(tmp_path: Path) -> None:
    asked = _task("half", "@test fn hidden() { assert(f() is 1) }\n", suite=Suite.HELDOUT, name="f")
    program = 'fn f() to str { return json.parse("\\"\\\\ud800\\"") }\n'
    completions = dict.fromkeys(("base", "adapter"), (completion(program, asked),))
    evaluated = evaluate_completions([asked], completions, SUBJECT, Decoding(), PROGRESS)
    write_documents(tmp_path, evaluated, "")
    first, second = read_models(tmp_path / SCORED_COMPLETIONS, ScoredCompletion)

    assert first.score.execution == second.score.execution
    assert first.score.execution is not None
    assert "\\ud800" in first.score.execution.message


def test_without_programs_nothing_runs() -> None:
    assert run_hidden_tests([]) == []


def test_a_completion_passes_if_its_tests_pass() -> None:
    tasks = [_task("right"), _task("wrong"), _task("broken"), _task("untested", None)]
    wrong = "fn double(n: int) to int { return n }\n"
    scored = score_completions(tasks, answers_to(tasks, (_GOOD, wrong, "fn (", wrong)))
    scores = compute_scores(tasks, {score.task: [score] for score in scored})

    assert [score.passed for score in scored] == [True, False, False, True]
    assert (scores.test_rate.numerator, scores.test_rate.denominator) == (1, 3)
    assert scores.execution_errors == {"wrong_answer": 1, "parse": 1}


_GIVEN = """type Shape = | Circle(r: int) | Square(s: int)

fn twice(n: int) to int {
    return n * 2
}"""
_AREA_TESTS = """@test("a circle") fn circle() to Unit { assert(area(Circle(3)) is 6) }
@test("a square") fn square() to Unit { assert(area(Square(3)) is 9) }
"""
_AREA = "fn area(shape: Shape) to int { match shape { Circle(r) => twice(r), Square(s) => s * s } }\n"


@pytest.mark.parametrize(
    ("program", "passes"),
    [
        (_AREA, True),
        (f"{_GIVEN}\n\n{_AREA}", True),
        (_AREA.replace("twice", "thrice"), False),
        (f"fn twice(n: int) to int {{ return n }}\n{_AREA}", False),
    ],
    ids=["uses given code", "repeats given code", "uses missing code", "replaces given code"],
)
def test_a_completion_may_use_given_code(program: str, *, passes: bool) -> None:
    pair = TrainingPair(prompt="Write `area`.", response=_AREA, category="function", tests=f"{_GIVEN}\n\n{_AREA_TESTS}")
    asked = heldout_tasks([pair])
    (scored,) = score_completions(asked, [completion(program, asked[0])])

    assert scored.passes_tests is passes, scored.execution


def test_tests_that_the_reference_fails_are_dropped() -> None:
    bad = "@test fn hidden() { assert(double(2) is 5) }\n"
    tasks = [_task("sound"), _task("unsound", bad), _task("untested", None)]
    sound, num_dropped = with_sound_tests(tasks)

    assert sound == (tasks[0], replace(tasks[1], tests=None), tasks[2])
    assert num_dropped == 1


def test_base_and_adapter_are_compared_by_hidden_tests() -> None:
    tests = {"first": _TESTS, "second": _TESTS, "untested": None}
    tasks = [_task(name, text, suite=Suite.HELDOUT) for name, text in tests.items()]
    wrong = "fn double(n: int) to int { return n }\n"
    completions = {"base": answers_to(tasks, [wrong] * 3), "adapter": answers_to(tasks, [_GOOD] * 3)}
    difference = evaluate_completions(tasks, completions, SUBJECT, Decoding(), PROGRESS).results.test_difference

    assert (difference.num_tasks, difference.only_first, difference.only_second) == (2, 0, 2)


_POINT_AND_TWICE = "type Point {\n    x: int\n}\n\nfn twice(n: int) to int {\n    return n * 2\n}"


def _score(program: str, **changes: Any) -> Score:
    asked = task(**changes)
    return judge(asked, completion(program, asked))


@pytest.mark.seed_row(41)
def test_every_reference_of_the_benchmarks_passes_and_resolves() -> None:
    tasks = [*benchmark_tasks(load_benchmark(SHIPPED)), *benchmark_tasks(HUMANEVAL)]
    scored = [judge(asked, completion(asked.reference, asked)) for asked in tasks]

    assert [(score.task, score.semantic_error) for score in scored if not (score.resolves and score.passed)] == []
    assert len(scored) == 250


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("fn add(p: Point) to int { return twice(p.x) }", None),
        (f"{_POINT_AND_TWICE}\n\nfn add(p: Point) to int {{ return twice(p.x) }}", None),
        ("fn add(p: Point) to int {\n    return p.y\n}", "2:13: unknown-field: `Point` has no field `y`"),
        ("fn add() to int { return thrice(2) }", "1:25: unknown-name: no name `thrice` is known here"),
        ("fn twice() to int { return 1 }\nfn add() to int { return twice() }", None),
    ],
    ids=["uses it", "repeats it", "misuses it", "missing", "replaces it"],
)
def test_names_of_given_code_resolve(program: str, error: str | None) -> None:
    score = _score(program, given=_POINT_AND_TWICE + "\n\nfn wrong() to int { return nothing }")

    assert (score.resolves, score.semantic_error) == (error is None, error)
    assert score.semantic_code == (error.split(": ")[1] if error is not None else None)


@pytest.mark.parametrize(
    ("prompt", "resolves"),
    [
        ("Write `add`, which calls `helper`.", True),
        ("Write a function `add` in Vox.\n\nThis is there already:\n\nfn helper() to int { return 1 }", True),
        ("Write add_all beside ```\nfn helper() { }\n```", True),
        ("Write a function that is a helper.", False),
    ],
    ids=["backticks", "code after a blank line", "fence", "prose"],
)
def test_names_mentioned_in_the_prompt_resolve(prompt: str, *, resolves: bool) -> None:
    assert _score("fn add() to int { return helper() }", prompt=prompt).resolves is resolves


def test_requested_names_do_not_resolve_but_names_of_the_reference_do() -> None:
    prompt = "Write `add` and `minus`; `plus` is there."
    changes = {"prompt": prompt, "requires": (needs("function", name="minus"), needs("function"))}

    assert _score("fn f() { plus() }", **changes).resolves
    assert not _score("fn f() { add() }", **changes).resolves
    assert not _score("fn f() { minus() }", **changes).resolves
    reference = "fn add(p: Pair) to int { match p { Both(a, b) => a + b, Neither => nothing } }"
    program = "fn add(p: Pair) to int { match p { Both(a, b) => a, Neither => nothing } }"

    assert _score(program, reference=reference).resolves
    assert not _score(program).resolves


def test_a_rejected_program_does_not_resolve() -> None:
    for program in ("fn add(", "// nothing"):
        score = _score(program)
        assert (score.parses, score.resolves, score.semantic_error) == (False, False, None)


def test_unreadable_given_code_reports_no_unknown_name() -> None:
    given = "@pure fn twice(n: int) to int { return n * 2 }"

    assert first_semantic_error(task(given=given, mode=Mode.SCRIPT), "print(missing)") is None
    impure = task(given=given.removeprefix("@pure "), mode=Mode.SCRIPT)
    assert first_semantic_error(impure, "print(missing)") is not None
