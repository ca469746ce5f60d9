"""Answers that are run."""

from dataclasses import replace
from pathlib import Path

import pytest

from mens_pipeline.corpus.jsonl import read_models
from mens_pipeline.evaluation.eval_results import write_documents
from mens_pipeline.evaluation.evaluate import Answers, evaluate_answers, judge_all
from mens_pipeline.evaluation.execution import run_hidden_tests
from mens_pipeline.evaluation.generation import Answer, Decoding
from mens_pipeline.evaluation.results import JUDGED_ANSWERS, JudgedAnswer
from mens_pipeline.evaluation.scores import scores_of
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.language import Mode
from mens_pipeline.language.interpreter import ErrorClass
from mens_pipeline_tests.evaluation.judged import SUBJECT

_TESTS = "@test fn hidden_small() { assert(double(2) is 4) }\n@test fn hidden_zero() { assert(double(0) is 0) }\n"
_GOOD = "fn double(n: int) to int { return n * 2 }\n"


def _task(name: str, tests: str | None = _TESTS) -> Task:
    return Task(
        id=name,
        suite=Suite.BENCHMARK,
        prompt="Write a function `double`.",
        construct="function",
        name="double",
        difficulty="easy",
        mode=Mode.SOURCE,
        reference=_GOOD,
        tests=tests,
    )


def _answer(task: str, text: str) -> Answer:
    return Answer(task=task, sample=0, text=text, num_tokens=9, stopped=True)


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
def test_a_program_is_what_its_tests_say(program: str, num_passed: int, error_class: ErrorClass | None) -> None:
    """Each way to be wrong has its class, and says where."""
    (execution,) = run_hidden_tests([(program, _TESTS)])

    assert (execution.num_passed, execution.error_class) == (num_passed, error_class)
    assert execution.passed == (error_class is None)
    assert bool(execution.message) == (error_class is not None)


def test_half_a_character_in_a_message_can_be_written(tmp_path: Path) -> None:
    """A program makes one by JSON; no file can hold it as it is."""
    asked = replace(_task("half", "@test fn hidden() { assert(f() is 1) }\n"), suite=Suite.HELDOUT, name="f")
    program = 'fn f() to str { return json.parse("\\"\\\\ud800\\"") }\n'
    answers = Answers((_answer("half", program),), (_answer("half", program),))
    evaluated = evaluate_answers([asked], answers, SUBJECT, Decoding())
    write_documents(tmp_path, evaluated, "")
    first, second = read_models(tmp_path / JUDGED_ANSWERS, JudgedAnswer)

    assert first.judgement.execution == second.judgement.execution
    assert first.judgement.execution is not None
    assert "\\ud800" in first.judgement.execution.message


def test_without_programs_nothing_is_started() -> None:
    """Most evaluations of a workspace have no tests."""
    assert run_hidden_tests([]) == []


def test_an_answer_passes_when_its_tests_do() -> None:
    """Right form alone is not enough where there are tests; where there are none it is."""
    tasks = [_task("right"), _task("wrong"), _task("broken"), _task("untested", None)]
    wrong = "fn double(n: int) to int { return n }\n"
    answers = [
        _answer("right", _GOOD),
        _answer("wrong", wrong),
        _answer("broken", "fn ("),
        _answer("untested", wrong),
    ]
    judged = judge_all(tasks, answers)
    scores = scores_of(tasks, {judgement.task: [judgement] for judgement in judged})

    assert [judgement.passed for judgement in judged] == [True, False, False, True]
    assert (scores.test_rate.numerator, scores.test_rate.denominator) == (1, 3)
    assert scores.execution_errors == {"wrong_answer": 1, "parse": 1}
