"""One answer against its task."""

from typing import Any

import pytest

from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.judge import judge
from mens_pipeline.evaluation.tasks import Task, benchmark_tasks
from mens_pipeline.language import Mode
from mens_pipeline_tests.evaluation.benches import SHIPPED
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, OTHER, completion, needs, task


def test_a_good_answer_passes() -> None:
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


def test_a_fenced_answer_passes() -> None:
    score = judge(task(), completion(f"Sure:\n```vox\n{GOOD}```\nDone."))

    assert (score.passed, score.program) == (True, GOOD)


def test_prose_around_a_bare_program_is_no_vox() -> None:
    score = judge(task(), completion(f"Sure, here it is:\n{GOOD}"))

    assert not score.parses
    assert not score.passed


def test_an_error_is_told_with_its_place() -> None:
    score = judge(task(requires=(needs("table"),)), completion(BROKEN))

    assert score.error is not None
    assert score.error.startswith("2:14: expected-expression: ")
    assert score.error_code == "expected-expression"
    assert (score.constructs, score.has_construct, score.has_name, score.unmet) == ({}, False, False, ())


@pytest.mark.parametrize(("text", "empty"), [("", True), (" \n", True), ("// nothing\n", False)])
def test_an_answer_must_declare_something(text: str, empty: bool) -> None:  # noqa: FBT001 - a column of the table
    score = judge(task(), completion(text))

    assert (score.parses, score.empty) == (False, empty)
    assert (score.error, score.error_code) == ("it declares nothing", None)


def test_a_refusal_is_known() -> None:
    assert judge(task(), completion("I'm sorry, I cannot write Vox.")).refusal


def test_a_program_that_says_sorry_is_no_refusal() -> None:
    score = judge(task(name="add"), completion('fn add() to str { return "I cannot add that" }'))

    assert (score.parses, score.refusal) == (True, False)


@pytest.mark.parametrize(
    ("program", "stub"),
    [
        ("fn add() to int { }", True),
        ("@pure\nfn add() to int { }", True),
        ("@endpoint(kind: query) fn add() to int { }", True),
        ("fn add() to int {\n    // TODO: add\n    return 0\n}", True),
        ("fn add() { }", False),
        ("fn add() to int { return 1 }", False),
        ('@ai(model: "m")\nfn add() to int { }', False),
        ("table", False),
        ('fn add() to int { panic("not implemented") }', True),
        ('fn add() to int { return panic("TODO") }', True),
        ("@endpoint(kind: query) fn add() to int { panic() }", True),
        ("fn add(a: int) to int { if a > 0 { return a } panic(a) }", False),
        ("fn add(a: int) to int { return other(a) }", False),
        ("fn add(a: int) { panic(a) }", False),
        ("fn add(a: int) to int { return a.panic() }", False),
    ],
    ids=[
        *("hollow", "decorated", "endpoint", "placeholder", "no value", "full", "by a model", "rejected", "panics"),
        *("returns a panic", "endpoint that panics", "panics at the end", "calls", "helper that fails", "method"),
    ],
)
def test_stubs_are_known(program: str, stub: bool) -> None:  # noqa: FBT001 - a column of the table
    score = judge(task(), completion(program))

    assert score.stub is stub
    assert not (stub and score.passed)


def test_an_external_function_is_no_stub() -> None:
    score = judge(task(), completion('extern "math" fn add(a: int) to int\n'))

    assert not score.stub


def test_the_asked_construct_must_be_there() -> None:
    score = judge(task(name=None), completion(OTHER))

    assert (score.parses, score.has_construct, score.has_name, score.passed) == (True, False, None, False)


@pytest.mark.parametrize(
    ("changes", "text", "has_name"),
    [
        ({}, "fn other() to int { return 1 }", False),
        ({}, "type add {\n    x: int\n}\n", False),
        ({}, f"fn helper() {{ }}\n{GOOD}", True),
        ({"name": None}, GOOD, None),
        ({"construct": "import", "name": "std.log"}, "import std.log", True),
        ({"construct": "import", "name": "log"}, "import std.log", True),
        ({"construct": "import", "name": "std.io"}, "import std.log", False),
        ({"construct": "index", "name": "T.by_a"}, "@table type T { a: int }\n@index T.by_a on (a)", True),
    ],
)
def test_the_asked_name_must_be_there(changes: dict[str, Any], text: str, has_name: bool | None) -> None:  # noqa: FBT001
    assert judge(task(**changes), completion(text)).has_name is has_name


def test_what_is_required_must_be_met() -> None:
    score = judge(task(requires=(needs("function", name="add", returns="str"), needs("table"))), completion())

    assert [sentence.split()[0] for sentence in score.unmet] == ["A", "Asked"]
    assert not score.passed


def test_an_answer_that_was_cut_off_does_not_pass() -> None:
    score = judge(task(), completion(stopped=False))

    assert (score.parses, score.passed) == (True, False)


@pytest.mark.parametrize(
    ("mode", "construct", "text"),
    [(Mode.SCRIPT, "function", "let x = 1\nprint(x)\n"), (Mode.UI, "reactive_module", "state count: int = 0\n")],
)
def test_an_answer_is_read_as_its_task_says(mode: Mode, construct: str, text: str) -> None:
    asked = task(mode=mode, construct=construct, name=None)
    as_source = task(mode=Mode.SOURCE, construct=construct, name=None)

    assert judge(asked, completion(text)).has_construct
    assert not judge(as_source, completion(text)).has_construct


def test_a_category_that_is_no_construct_asks_for_none() -> None:
    asked = task(construct="puzzles", name=None, requires=(needs("type", name="Point"),))

    assert judge(asked, completion(OTHER)).passed
    assert not judge(asked, completion(GOOD)).passed
    assert not judge(asked, completion(BROKEN)).has_construct


@pytest.mark.seed_row(41)
def test_every_shipped_solution_passes_its_task() -> None:
    tasks: tuple[Task, ...] = benchmark_tasks(load_benchmark(SHIPPED))

    assert [t.id for t in tasks if not judge(t, completion(t.reference, t)).passed] == []
