"""The score of one completion of a task."""

from typing import Any

import pytest

from mens_pipeline.evaluation.judge import judge
from mens_pipeline.language import Mode
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, OTHER, completion, needs, task
from mens_pipeline_tests.every import every

_PUZZLE: dict[str, Any] = {"construct": "puzzles", "name": None, "requires": (needs("type", name="Point"),)}
"""The category is not a construct, so no construct is required."""


def test_a_good_completion_passes() -> None:
    score = judge(task(), completion())

    assert score.passed
    assert score.model_dump() == {
        "task": "heldout/0000",
        "sample": 0,
        "program": GOOD,
        "num_tokens": 7,
        "stopped": True,
        "empty": False,
        "refusal": False,
        "stub": False,
        "parses": True,
        "error": None,
        "error_code": None,
        "resolves": True,
        "semantic_error": None,
        "semantic_code": None,
        "constructs": {"function": 1},
        "has_construct": True,
        "has_name": True,
        "unmet": (),
        "has_tests": False,
        "execution": None,
    }


@every(
    "case",
    [
        (f"Sure:\n```vox\n{GOOD}```\nDone.", {}, {"passed": True, "program": GOOD}),
        (f"Sure, here it is:\n{GOOD}", {}, {"parses": False, "passed": False}),
        ("", {}, {"parses": False, "empty": True, "error": "it declares nothing", "error_code": None}),
        (" \n", {}, {"parses": False, "empty": True, "error": "it declares nothing", "error_code": None}),
        ("// nothing\n", {}, {"parses": False, "empty": False, "error": "it declares nothing", "error_code": None}),
        ("I'm sorry, I cannot write Vox.", {}, {"refusal": True}),
        ('fn add() to str { return "I cannot add that" }', {}, {"parses": True, "refusal": False}),
        (OTHER, {"name": None}, {"parses": True, "has_construct": False, "has_name": None, "passed": False}),
        ('extern "math" fn add(a: int) to int\n', {}, {"stub": False}),
        ("fn other() to int { return 1 }", {}, {"has_name": False}),
        ("type add {\n    x: int\n}\n", {}, {"has_name": False}),
        (f"fn helper() {{ }}\n{GOOD}", {}, {"has_name": True}),
        (GOOD, {"name": None}, {"has_name": None}),
        ("import std.log", {"construct": "import", "name": "std.log"}, {"has_name": True}),
        ("import std.log", {"construct": "import", "name": "log"}, {"has_name": True}),
        ("import std.log", {"construct": "import", "name": "std.io"}, {"has_name": False}),
        (
            "@table type T { a: int }\n@index T.by_a on (a)",
            {"construct": "index", "name": "T.by_a"},
            {"has_name": True},
        ),
        (OTHER, _PUZZLE, {"passed": True}),
        (GOOD, _PUZZLE, {"passed": False}),
        (BROKEN, _PUZZLE, {"has_construct": False}),
    ],
)
def test_a_completion_is_scored(case: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    text, asked, expected = case
    score = judge(task(**asked), completion(text))

    assert {name: getattr(score, name) for name in expected} == expected


def test_an_error_has_a_place() -> None:
    score = judge(task(requires=(needs("table"),)), completion(BROKEN))

    assert score.error is not None
    assert score.error.startswith("2:14: expected-expression: ")
    assert score.error_code == "expected-expression"
    assert (score.constructs, score.has_construct, score.has_name, score.unmet) == ({}, False, False, ())


@every(
    "program",
    [
        "fn add() to int { }",
        "@pure\nfn add() to int { }",
        "@endpoint(kind: query) fn add() to int { }",
        "fn add() to int {\n    // TODO: add\n    return 0\n}",
        'fn add() to int { panic("not implemented") }',
        'fn add() to int { return panic("TODO") }',
        "@endpoint(kind: query) fn add() to int { panic() }",
    ],
)
def test_recognizes_stubs(program: str) -> None:
    score = judge(task(), completion(program))

    assert score.stub
    assert not score.passed


@every(
    "program",
    [
        "fn add() { }",
        "fn add() to int { return 1 }",
        '@ai(model: "m")\nfn add() to int { }',
        "table",
        "fn add(a: int) to int { if a > 0 { return a } panic(a) }",
        "fn add(a: int) to int { return other(a) }",
        "fn add(a: int) { panic(a) }",
        "fn add(a: int) to int { return a.panic() }",
    ],
)
def test_accepts_functions_that_are_not_stubs(program: str) -> None:
    assert not judge(task(), completion(program)).stub


def test_requirements_must_be_met() -> None:
    score = judge(task(requires=(needs("function", name="add", returns="str"), needs("table"))), completion())

    assert [sentence.split()[0] for sentence in score.unmet] == ["A", "Expected"]
    assert not score.passed


def test_a_truncated_completion_does_not_pass() -> None:
    score = judge(task(), completion(stopped=False))

    assert (score.parses, score.passed) == (True, False)


@pytest.mark.parametrize(
    ("mode", "construct", "text"),
    [(Mode.SCRIPT, "function", "let x = 1\nprint(x)\n"), (Mode.UI, "reactive_module", "state count: int = 0\n")],
)
def test_a_completion_is_read_in_the_mode_of_its_task(mode: Mode, construct: str, text: str) -> None:
    asked = task(mode=mode, construct=construct, name=None)
    as_source = task(mode=Mode.SOURCE, construct=construct, name=None)

    assert judge(asked, completion(text)).has_construct
    assert not judge(as_source, completion(text)).has_construct
