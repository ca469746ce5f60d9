"""One answer against its task."""

from typing import Any

import pytest

from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.judge import judge
from mens_pipeline.evaluation.tasks import Task, benchmark_tasks
from mens_pipeline.language import Mode
from mens_pipeline_tests.evaluation.benches import SHIPPED
from mens_pipeline_tests.evaluation.judged import BROKEN, GOOD, OTHER, answer, needs, task


def test_a_good_answer_passes() -> None:
    """Everything that is said of it."""
    judgement = judge(task(), answer())

    assert judgement.passed
    assert judgement.model_dump() == {
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
    """What stands around the program is not judged."""
    judgement = judge(task(), answer(f"Sure:\n```vox\n{GOOD}```\nDone."))

    assert (judgement.passed, judgement.program) == (True, GOOD)


def test_prose_around_a_bare_program_is_no_vox() -> None:
    """Without a fence nobody can tell where the program begins."""
    judgement = judge(task(), answer(f"Sure, here it is:\n{GOOD}"))

    assert not judgement.parses
    assert not judgement.passed


def test_an_error_is_told_with_its_place() -> None:
    """Line from 1, column from 0, code, message; nothing else is said of what has no tree."""
    judgement = judge(task(requires=(needs("table"),)), answer(BROKEN))

    assert judgement.error is not None
    assert judgement.error.startswith("2:14: expected-expression: ")
    assert judgement.error_code == "expected-expression"
    assert (judgement.constructs, judgement.has_construct, judgement.has_name, judgement.unmet) == (
        {},
        False,
        False,
        (),
    )


@pytest.mark.parametrize(("text", "empty"), [("", True), (" \n", True), ("// nothing\n", False)])
def test_an_answer_must_declare_something(text: str, empty: bool) -> None:  # noqa: FBT001 - a column of the table
    """The front end accepts it all the same."""
    judgement = judge(task(), answer(text))

    assert (judgement.parses, judgement.empty) == (False, empty)
    assert (judgement.error, judgement.error_code) == ("it declares nothing", None)


def test_a_refusal_is_known() -> None:
    """It is no program."""
    assert judge(task(), answer("I'm sorry, I cannot write Vox.")).refusal


def test_a_program_that_says_sorry_is_no_refusal() -> None:
    """The model did what it was asked for."""
    judgement = judge(task(name="add"), answer('fn add() to str { return "I cannot add that" }'))

    assert (judgement.parses, judgement.refusal) == (True, False)


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
    """A promise without a body or with nothing but a panic, or a placeholder."""
    judgement = judge(task(), answer(program))

    assert judgement.stub is stub
    assert not (stub and judgement.passed)


def test_an_external_function_is_no_stub() -> None:
    """Its body is elsewhere."""
    judgement = judge(task(), answer('extern "math" fn add(a: int) to int\n'))

    assert not judgement.stub


def test_the_asked_construct_must_be_there() -> None:
    """Other Vox is no answer."""
    judgement = judge(task(name=None), answer(OTHER))

    assert (judgement.parses, judgement.has_construct, judgement.has_name, judgement.passed) == (
        True,
        False,
        None,
        False,
    )


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
    """On a declaration of the asked construct."""
    assert judge(task(**changes), answer(text)).has_name is has_name


def test_what_is_required_must_be_met() -> None:
    """A sentence for each that is not."""
    judgement = judge(task(requires=(needs("function", name="add", returns="str"), needs("table"))), answer())

    assert [sentence.split()[0] for sentence in judgement.unmet] == ["A", "Asked"]
    assert not judgement.passed


def test_an_answer_that_was_cut_off_does_not_pass() -> None:
    """Even where what there is of it is Vox."""
    judgement = judge(task(), answer(stopped=False))

    assert (judgement.parses, judgement.passed) == (True, False)


@pytest.mark.parametrize(
    ("mode", "construct", "text"),
    [(Mode.SCRIPT, "function", "let x = 1\nprint(x)\n"), (Mode.UI, "reactive_module", "state count: int = 0\n")],
)
def test_an_answer_is_read_as_its_task_says(mode: Mode, construct: str, text: str) -> None:
    """What is a script or a page is no source file."""
    asked = task(mode=mode, construct=construct, name=None)
    as_source = task(mode=Mode.SOURCE, construct=construct, name=None)

    assert judge(asked, answer(text)).has_construct
    assert not judge(as_source, answer(text)).has_construct


def test_a_category_that_is_no_construct_asks_for_none() -> None:
    """The requirements of the task say what it wants."""
    asked = task(construct="puzzles", name=None, requires=(needs("type", name="Point"),))

    assert judge(asked, answer(OTHER)).passed
    assert not judge(asked, answer(GOOD)).passed
    assert not judge(asked, answer(BROKEN)).has_construct


@pytest.mark.seed_row(41)
def test_every_shipped_solution_passes_its_task() -> None:
    """No task of the benchmark is out of reach."""
    tasks: tuple[Task, ...] = benchmark_tasks(load_benchmark(SHIPPED))

    assert [t.id for t in tasks if not judge(t, answer(t.reference, t)).passed] == []
