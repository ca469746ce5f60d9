"""Changes of order, of literals, and tests with known results."""

from random import Random

import pytest

from mens_pipeline.corpus.synthesis.mutations import MUTATIONS
from mens_pipeline.corpus.synthesis.mutations.evaluation import CannotEvaluateError, Value, result_of
from mens_pipeline.corpus.synthesis.program import read_program
from mens_pipeline.language import Mode
from mens_pipeline.language.ast.functions import Function
from mens_pipeline.language.vocabulary import MAX_INT

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
    """At the end of the program, in the order of the request."""
    tasks = _tasks("add-test", _TESTED)
    words = "Extend this Vox program by a test `test_fee` that asserts the results of `fee(12)` and `fee(3)`:"

    assert tasks[words] == (
        _TESTED + "\n@test\nfn test_fee() to Unit {\n    assert(fee(12) is 80)\n    assert(fee(3) is 20)\n}\n"
    )


def test_bools_and_strings_are_asserted_as_one_writes_them() -> None:
    """`assert(f(x))`, `assert(not f(x))`, text in quotes."""
    bools = "".join(_tasks("add-test", "fn even(n: int) to bool { return n % 2 is 0 }").values())
    texts = "".join(_tasks("add-test", 'fn hi(name: str, loud: bool) to str { return "Hi " + name }').values())

    assert "    assert(even(12))\n" in bools
    assert "    assert(not even(7))\n" in bools
    assert '    assert(hi("Ada", true) is "Hi Ada")\n' in texts


def test_a_tested_function_gets_a_test_of_another_name() -> None:
    """Unless that, too, is taken."""
    test = "\n@test fn test_fee() { assert(fee(1) is 0) }\n"

    assert all("`test_fee_more`" in request for request in _tasks("add-test", _TESTED + test))
    assert _tasks("add-test", _TESTED + test + test.replace("test_fee", "test_fee_more")) == {}


@pytest.mark.parametrize(
    "source",
    [
        "fn f() to int { return 1 }",
        "fn f(n: int) { return n }",
        "fn f(n: int = 1) to int { return n }",
        "fn f(n: List[int]) to int { return 1 }",
        "fn f<T>(n: int) to int { return 1 }",
        "fn F(n: int) to int { return n }",
        "fn text(n: int) to int { return n }",
        "fn f(n: int) uses db to int { return 1 }",
        "async fn f(n: int) to int { return 1 }",
        'extern fn f(n: int) to int = "m"',
        "@require(n > 0) fn f(n: int) to int { return n }",
        "fn f(n: int) to int { return random() + n }",
        "fn f(n: int) to str { return n }",
        'fn f(n: int) to str { return "\\"" + n }',
        "fn f(n: int) to int { return n }\nfn len(s: str) to int { return 1 }",
        "type T { a: int }",
    ],
)  # fmt: skip
def test_functions_whose_results_are_not_known_get_no_test(source: str) -> None:
    """Or that no test could call by name with a few arguments."""
    assert _tasks("add-test", source) == {}


def test_scripts_get_no_tests() -> None:
    """Their last statement is no declaration to put a test behind."""
    assert _tasks("add-test", _TESTED, Mode.SCRIPT) == {}


def _result(body: str, *arguments: Value) -> Value:
    program = read_program(f"fn f({', '.join('xyz'[: len(arguments)])}) {{ {body} }}")
    assert program is not None
    function = program.spans[0].declaration
    assert isinstance(function, Function)
    return result_of(function, arguments)


@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        ("return x + y * 2", (1, 3), 7),
        ("return x - y", (1, 3), -2),
        ("return x / y", (-7, 2), -3),
        ("return x / y", (-7, -2), 3),
        ("return x / y", (0, -2), 0),
        ("return x % y", (-7, 3), -1),
        ("return x % y", (7, -3), 1),
        ("return -x", (MAX_INT,), -MAX_INT),
        ("return x + y", ("a", 1), "a1"),
        ("return x + y", (True, "a"), "truea"),
        ("return str(x) + str(y)", (False, -5), "false-5"),
        ("return len(x)", ("é",), 2),
        ("return x is y", (1, True), False),
        ("return x isnt y", (1, True), True),
        ("return x < y", (1, 2), True),
        ("return x > y", (1, 2), False),
        ("return x <= y", (2, 2), True),
        ("return x >= y", (1, 2), False),
        ("return x or 1 / 0 > 1", (True,), True),
        ("return x and 1 / 0 > 1", (False,), False),
        ("return x and y", (True, False), False),
        ("return x or y", (False, True), True),
        ("return not x", (True,), False),
        ("let a = x let a = a + 1 return a", (1,), 2),
        ("return if x { 1 } else { 2 }", (False,), 2),
        ("if x { return 1 } return 2", (False,), 2),
        ("if x { return 1 } else if y { return 2 } return 3", (False, True), 2),
        ('return match x { 1 => "one" _ => "more" }', (1,), "one"),
        ('return match x { "a" => 1 other => 2 }', ("b",), 2),
        ('return match x { 1 => "one" _ => "more" }', (True,), "more"),
    ],
)  # fmt: skip
def test_small_functions_mean_what_vox_means(body: str, arguments: tuple[Value, ...], expected: Value) -> None:
    """Truncating division, remainders with the sign of the left, bytes, no truth but bools."""
    result = _result(body, *arguments)

    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("x", (1,)),
        ("let a = x", (1,)),
        ("return", ()),
        ("while x { }", (False,)),
        ("let (a, b) = x", (1,)),
        ("return x / 0", (1,)),
        ("return x % 0", (1,)),
        ("return x + 1", (MAX_INT,)),
        ("return x * x", (MAX_INT,)),
        ("return x + y", (1, True)),
        ("return x < y", ("a", "b")),
        ("return x and y", (1, True)),
        ("return len(x)", (1,)),
        ("return str(x, x)", (1,)),
        ("let str = x return str(x)", (1,)),
        ("return other", (1,)),
        ("return [x]", (1,)),
        ("return x |> str", (1,)),
        ("return if x { 1 }", (False,)),
        ("return match x { 1 => 2 }", (3,)),
        ("return match x { (a, b) => 2 }", (3,)),
        ("return match x { None => 2 }", (3,)),
    ],
)
def test_what_is_not_beyond_doubt_has_no_result(body: str, arguments: tuple[Value, ...]) -> None:
    """No value is better than a wrong one."""
    with pytest.raises(CannotEvaluateError):
        _result(body, *arguments)
