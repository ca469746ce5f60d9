"""Changes of order, of literals, and tests with known results."""

import re
from random import Random

import pytest

from mens_pipeline.corpus.synthesis.mutations import MUTATIONS
from mens_pipeline.corpus.synthesis.program import read_program
from mens_pipeline.language import Mode
from mens_pipeline.language.interpreter import run_tests

_SEEDS = 80


def _random(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - a reproducible draw, no secret


def _tasks(kind: str, source: str, mode: Mode = Mode.SOURCE) -> dict[str, str]:
    """Request -> changed program, for all that different seeds give."""
    program = read_program(source, mode)
    assert program is not None
    found = [MUTATIONS[kind](program, _random(seed)) for seed in range(_SEEDS)]
    shown = f"\n\n{program.source.rstrip()}"
    return {sample.prompt.removesuffix(shown): sample.response for sample in found if sample is not None}


def test_members_come_in_the_order_asked_for() -> None:
    """Fields of types and tables, variants, on one line or several."""
    table = _tasks("reorder", "@table type Book {\n    title: str\n    author: str\n}\n")
    variants = _tasks("reorder", "type Light =\n    | Red\n    | Amber(left: int)\n")
    words = "Put the fields of the table `Book` in this Vox program in the order `author` and `title`:"

    assert table[words] == "@table type Book {\n    author: str\n    title: str\n}\n"
    assert set(table.values()) == {table[words]}
    assert variants["Sort the variants of the type `Light` in this Vox program by name, from A to Z:"] == (
        "type Light =\n    | Amber(left: int)\n    | Red\n"
    )


def test_sorted_members_are_put_in_another_order() -> None:
    """Sorting them would change nothing."""
    assert not any("Sort" in request or "alphabet" in request for request in _tasks("reorder", "type P { a: A, b: B }"))


@pytest.mark.parametrize(
    "source",
    ["type P { a: A }\n", "type P {\n    a: A // first\n    b: B\n}\n", "type P { a: A, a: B }\n", "fn f() { }\n"],
)
def test_members_that_cannot_trade_places(source: str) -> None:
    """A single one, comments that would lose theirs, one name twice."""
    assert _tasks("reorder", source) == {}


_ORDER = """// Twice.
fn double(n: int) to int { return n * 2 }

fn four_times(n: int) to int { return double(double(n)) }

routes { }
"""


def test_declarations_move_past_what_neither_needs_nor_is_needed() -> None:
    """Comments directly above go with them."""
    tasks = _tasks("reorder", _ORDER)
    double, four, routes = (
        "// Twice.\nfn double(n: int) to int { return n * 2 }\n",
        "fn four_times(n: int) to int { return double(double(n)) }\n",
        "routes { }\n",
    )

    assert tasks["Swap the function `four_times` and the routes block in this Vox program:"] == (
        f"{double}\n{routes}\n{four}"
    )
    assert tasks["Move the routes block to the top of this Vox program:"] == f"{routes}\n{double}\n{four}"
    assert len(set(tasks.values())) == 2


def test_moving_comments_are_spoken_of() -> None:
    """Where they belong is part of the request."""
    tasks = _tasks("reorder", "// A.\nfn a() { }\n\nfn b() { }\n\nfn c() { }\n")
    end = tasks["Move the function `a` to the end of this Vox program. A comment above a declaration moves with it."]

    assert end == "fn b() { }\n\nfn c() { }\n\n// A.\nfn a() { }\n"
    assert "Swap the function `b` and the function `c` in this Vox program:" in tasks


@pytest.mark.parametrize(
    ("source", "mode"),
    [
        ("import std.log\n\nfn f() { }\n", Mode.SOURCE),
        ("fn f() { } fn g() { }\n", Mode.SOURCE),
        ("fn f() { } // f\n\nfn g() { }\n", Mode.SOURCE),
        ("// Part one\n\nfn f() { }\n\nfn g() { }\n", Mode.SOURCE),
        ("routes { }\n\nroutes { }\n", Mode.SOURCE),
        ("x = 1\n\nfn g() { }\n", Mode.SCRIPT),
        ("state a = 1\n\nfn g() { }\n\nstate b = 1\n\nfn h() { a }", Mode.UI),
    ],
)
def test_declarations_that_stay_where_they_are(source: str, mode: Mode) -> None:
    """Imports, shared lines, comments that stand between, twins, scripts, members that would join."""
    assert all("function `g` to" not in request or mode is Mode.UI for request in _tasks("reorder", source, mode))
    assert mode is Mode.UI or _tasks("reorder", source, mode) == {}


@pytest.mark.parametrize(
    ("source", "request_part", "old", "new"),
    [
        ("fn f() { let mut left = 20 }", "the initial value of `left` in the function `f` from `20`", "20", "40"),
        ("fn f() { let open = false }", "the value of `open` in the function `f` from `false`", "false", "true"),
        ("fn f() { let open = true }", "the value of `open` in the function `f` from `true`", "true", "false"),
        ("fn f(n: int = 7) { }", "the default of the parameter `n` in the function `f`", "7", "9"),
        ("let RATE: float = 0.5", "the value of the constant `RATE` from `0.5` to `1.5` in", "0.5", "1.5"),
        ("let RATE: float = 0.5", "the value of the constant `RATE` from `0.5` to `1.0` in", "0.5", "1.0"),
        ("let RATE: float = 0.0", "the value of the constant `RATE` from `0.0` to `1.0` in", "0.0", "1.0"),
        ("component C() { state n = 3 }", "the initial value of the state `n` in the component `C`", "3", "4"),
        ("@form F { field a: int default(5) }", "the default of the form field `a` in the form `F`", "5", "7"),
        ("component C() { view: row(gap=2) }", "the attribute `gap` of `row` in the component `C`", "2", "3"),
        ('component C() { view: text(attr_title="Oat milk") { x } }', "`attr_title` of `text`", "Oat milk", "OAT MILK"),
        ("@rate_limit(by: ip, max: 60) fn f() { }", "`max` of `@rate_limit` in the function `f`", "60", "70"),
        ("fn f(n: int) to bool { return n > 15 }", "the number `15` in the function `f`", "15", "17"),
        ("fn f() { return db.A.all().limit(15) }", "the number `15` in the function `f`", "15", "14"),
        ('fn f() to str { return "No such item" }', 'the text "No such item" in', "item", "entry"),
        ('fn f() to str { return "Customer" }', 'the text "Customer"', "Customer", "Buyer"),
        ('fn f() to str { return "Oat milk" }', 'to "Note: Oat milk"', "Oat", "Note: Oat"),
        ("fn f() to str { return 'oat milk ' }", "to 'warning: oat milk '", "oat", "warning: oat"),
    ],
)  # fmt: skip
def test_a_literal_is_called_by_its_place(source: str, request_part: str, old: str, new: str) -> None:
    """Or by what it says, where it has no name."""
    tasks = _tasks("literals", source)
    changed = {answer for request, answer in tasks.items() if request_part in request}

    assert source.replace(old, new) + "\n" in changed


@pytest.mark.parametrize(
    "source",
    [
        "fn f() to int { return 15 }",
        "fn f(n: int) to bool { return n > 0 }",
        "fn f(n: int) to bool { return n > 15 and n < 15 }",
        "// at most 15\nfn f(n: int) to bool { return n > 15 }",
        'fn f(n: int) to bool { if n > 15 { print("over 15!") } }',
        'fn f() to str { return "asc" }',
        'fn f() { g("Oat milk") g("Oat milk") }',
        "fn f() { let x = 5 let x = 6 }",
        "fn f() { let (a, b) = 5 let x = 5000000 }",
        'fn f() { let x: str = "a\\nb" }',
        "component C() { derived d = 5 view: row(gap=g()) }",
        '@ai(5, model="m", max_iterations) fn f() { }',
        "fn limit() to int { let n = 5 return n }\n\n@test fn t() { assert(limit() is 5) }",
    ],
)  # fmt: skip
def test_literals_that_are_left_alone(source: str) -> None:
    """Those that make no sense alone, that comments, texts or tests speak of, or that no words tell apart."""
    assert _tasks("literals", source) == {}


_TESTED = """fn fee(days: int) to int {
    if days < 3 { return 0 }
    return days * 20 / 3
}
"""


def test_a_test_asserts_what_the_function_returns() -> None:
    """At the end of the program, in the order of the request; it passes."""
    tasks = _tasks("add-test", _TESTED)

    assert len(tasks) > 10
    for request, answer in tasks.items():
        calls = re.findall(r"`(fee\(-?\d+\))`", request)
        asserted = re.findall(r"^    assert\((fee\(-?\d+\)) is -?\d+\)$", answer, re.MULTILINE)

        assert "`test_fee`" in request
        assert 2 <= len(calls) == len(set(calls)) <= 3
        assert asserted == calls
        assert answer.startswith(_TESTED + "\n@test\nfn test_fee() to Unit {\n")
        assert run_tests(answer).passed


def test_bools_are_asserted_without_a_comparison() -> None:
    """`assert(f(x))`, `assert(not f(x))`; lists and records as one writes them."""
    bools = "".join(_tasks("add-test", "fn even(n: int) to bool { return n % 2 is 0 }").values())
    lists = "".join(_tasks("add-test", "fn ends(xs: List[int]) to List[int] { return [len(xs), 1] }").values())

    assert re.search(r"^    assert\(even\(-?\d*[02468]\)\)$", bools, re.MULTILINE)
    assert re.search(r"^    assert\(not even\(-?\d*[13579]\)\)$", bools, re.MULTILINE)
    assert "    assert(ends([]) is [0, 1])\n" in lists


def test_a_tested_function_gets_a_test_of_another_name() -> None:
    """Unless that, too, is taken."""
    test = "\n@test fn test_fee() { assert(fee(1) is 0) }\n"

    assert all("`test_fee_more`" in request for request in _tasks("add-test", _TESTED + test))
    assert _tasks("add-test", _TESTED + test + test.replace("test_fee", "test_fee_more")) == {}


@pytest.mark.parametrize(
    "source",
    [
        "fn f() to int { return 1 }",
        "fn f(n: int) to int { return n }",
        "fn f(n: int) to int { return 1 }",
        "fn f(n: int = 1) to int { return n * n }",
        "fn F(n: int) to int { return n * n }",
        "fn text(n: int) to int { return n * n }",
        "fn f(n: int) uses db to int { return len(db.A.all()) + n }",
        'extern fn f(n: int) to int = "m"',
        "@require(n > 0) fn f(n: int) to int { return n * n }",
        "fn f(n: int) to int { return random() + n }",
        "type T { a: int }",
    ],
)
def test_functions_without_a_behaviour_get_no_test(source: str) -> None:
    """Or that a test could not call by name, or not in every mode."""
    assert _tasks("add-test", source) == {}


def test_scripts_get_no_tests() -> None:
    """Their last statement is no declaration to put a test behind."""
    assert _tasks("add-test", _TESTED, Mode.SCRIPT) == {}
