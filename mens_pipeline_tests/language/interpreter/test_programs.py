"""Declarations, scopes, calls and control flow that the examples of the rules do not show."""

import pytest

from mens_pipeline.language.interpreter import Features, TextName
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.interpreter.verdicts import only_result, result_of_body, verdict

_PASSING = {
    "loop continues": "@test fn t() { let mut n = 0 loop { n += 1 if n < 3 { continue } break } assert(n is 3) }",
    "tuple patterns": "@test fn t() { let v = match (1, 2, 3) { (a, b) => 0, (_, 2, c) => c, _ => 9 } assert(v is 3) "
    'let w = match 5 { (a, b) => 0 "x" => 1 6 => 2 _ => 3 } assert(w is 3) }',
    "variant mismatch": "type S = | A(n: int) | B(n: int)\n"
    "@test fn t() { assert(match B(2) { A(n) => n B(_) => 7 } is 7) }",
    "url and actor and workflow": "url P { Home Task(id: int) }\n"
    "actor Echo { on say(s: str, twice: bool = false) to str { if twice { return s + s } return s } }\n"
    'workflow w(n: int) to int { return workflow.version("v", 1, 3) + n }\n'
    '@test fn t() { let e = spawn(Echo) assert(e.say("a", true) is "aa") assert(e.say("b") is "b") '
    "assert(w(1) is 4) assert(Task(id=2) is Task(2)) assert(Home() is Home) }",
    "views that are calls": "fn card(attr_title: str) to str { return attr_title }\n"
    '@test fn t() { let row = fn() 5 assert(row() is 5) assert(card(attr_title="x") is "x") }',
    "piped assertion": "@test fn t() { (1 is 1) |> assert }",
    "messages are texts": '@test fn t() { assert(true, "m") assert(1 < 2, "m") assert_eq([1], [1]) assert_ne(1, 1.0) }',
    "imports of built-ins": "import std.regex as regex, std.log as log, std.json, fs\n"
    '@test fn t() { assert(regex.compile("a").is_ok()) log.info("x") assert(json.parse("1") is 1) }',
    "side effects are lambdas": "@test fn t() { let mut n = 1 let v = side_effect { n = 5 return n } "
    "assert(v is 5) assert(n is 1) }",
    "option of a shadowing type": "type O = | None | Some(v: int)\n"
    "@test fn t() { assert(None is null) assert([].first() is None) assert(not bool(None)) }",
    "modules of every kind": "@table type N { a: int }\n@index N.by on (a)\n@form F { field a: int }\n"
    'component C(a: int) { view: text("x") }\nfragment G() { text("y") }\n@loading fn l() { text("z") }\n'
    'routes { "/" to C }\n@resource("u", "d") fn r() to int { return 1 }\n@tool "d" fn q() to int { return 2 }\n'
    "@test fn t() { assert(r() + q() is 3) }",
    "fields of imported names": 'import std\n@test fn t() { assert(std.path.basename("a/b") is "b") }',
}

_ERRORS = {
    "a break in a lambda": ("for x in [1] { let f = fn() { break } f() }", "error:LoopControl"),
    "continue without a loop": ("continue", "error:LoopControl"),
    "assignment to a field of a list": ("let mut x = [1] x.a = 2", "error:TypeError"),
    "assignment to a new field": ("let mut x = { a: 1 } x.b = 2", "error:MissingField"),
    "assignment below a missing field": ('let mut x = { a: 1 } x["b"]["c"] = 2', "error:MissingField"),
    "assignment outside a list": ("let mut x = [1] x[1] = 2", "error:IndexOutOfRange"),
    "assignment to a built-in": ("len = 2", "error:AssignToImmutable"),
    "assignment to a loop name": ("for x in [1] { x = 2 }", "error:AssignToImmutable"),
    "assignment to a call": ("f(1).x = 2", "error:InvalidAssignTarget"),
    "a bare pattern for a payload": ("let v = match Some(1) { Some => 1 _ => 2 }", "error:PatternArity"),
    "an unknown variant": ("let v = match 1 { Nope(n) => n _ => 2 }", "error:UnknownVariant"),
    "calling a record": ("let v = { a: 1 }(2)", "error:NotCallable"),
    "a name beyond the parameters": ("let f = fn(a) a let v = f(a=1, b=2)", "error:NamedArgument"),
    "a variant with attributes": ("let v = None(a=1)", "error:ArityError"),
    "fields of a namespace path": ("let v = std.fs", "unsupported:fs"),
    "a question mark on a wide Ok": ("let v = true?", "error:TypeError"),
    "a test by name": ("let v = missing()", "error:UndefinedName"),
    "a repeated field": ('let v = { a: 1 / 0, "a": 2 }', "error:DivisionByZero"),
    "unknown event": ("let v = 1 |> (x => x.nothing())", "error:UnknownMethod"),
}


@pytest.mark.parametrize("source", _PASSING.values(), ids=_PASSING)
def test_program_passes(source: str) -> None:
    result = only_result(source)

    assert (verdict(result), result.message, result.notes) == ("pass", "", ())


@pytest.mark.parametrize(("body", "expected"), _ERRORS.values(), ids=_ERRORS)
def test_body_ends_in_its_error(body: str, expected: str) -> None:
    assert verdict(result_of_body(body)) == expected


@every_row(
    ("extern fn e() to int = 'm'", "e()", "unsupported:extern"),
    ("@ai fn a() to str", "[a]", "unsupported:llm"),
    ("component C() { view: text('x') }", "C", "unsupported:ui"),
    ("@loading fn l() { text('x') }", "l", "unsupported:ui"),
    ("import a.b as { c }", "c", "unsupported:import"),
    ("import rust:serde", "serde", "unsupported:import"),
    ("import std.regex.deeper", "deeper", "unsupported:import"),
    ("actor A { on e() { } }", "A.e()", "error:UnknownMethod"),
    ("actor A { on e() { } }", "spawn(A).f()", "error:UnknownMethod"),
    ("actor A { on e() { } }", "spawn(A).e(x=1)", "error:NamedArgument"),
    ("type W = | Ok(a: int, b: int)", "Ok(1, 2)?", "error:TypeError"),
    ("type W = | Some(a: int, b: int)", "Some(1, 2).unwrap()", "error:UnknownMethod"),
    ("fn f(a: int, b: int = 1) to int { return a }", "f()", "error:ArityError"),
    ("fn f(a: int, b: int = 1) to int { return a }", "f(1, 2, 3)", "error:ArityError"),
)
def test_names_of_declarations_that_have_no_value(declarations: str, expression: str, expected: str) -> None:
    result = only_result(f"{declarations}\n@test fn t() {{ let x = {expression} }}")

    assert verdict(result) == expected


def test_a_failure_has_a_place_and_a_message() -> None:
    result = only_result('fn f() to str { return "b" }\n@test fn t() {\n    assert(f() is "a", "wanted a")\n}')

    assert (result.line, result.column, result.text) == (3, 4, TextName.PROGRAM)
    assert result.message == 'wanted a: expected `left is right` (left: "b", right: "a")'
    assert (result.num_assertions, result.error_class) == (1, "wrong_answer")


@every_row(
    ("assert(false)", "the assertion is false"),
    ("assert(not true)", "the assertion is false"),
    ("assert(true and false)", "the assertion is false"),
    ("assert_eq(1, 2)", "expected `left is right` (left: 1, right: 2)"),
    ("assert_ne(1, 1)", "expected `left isnt right` (left: 1, right: 1)"),
    ('assert("a".repeat(200) is "")', f'expected `left is right` (left: "{"a" * 119}…, right: "")'),
    ("return Error(7)", "the test returned Error(7)"),
)
def test_failures_have_a_message(body: str, message: str) -> None:
    result = result_of_body(body)

    assert (verdict(result), result.message) == ("fail", message)


def test_a_pass_without_assertions_is_marked() -> None:
    assert result_of_body("let x = 1").notes == ("vacuous",)


def test_an_error_in_a_constant_fails_each_test() -> None:
    result = only_result("let A = 1 / 0\n@test fn t() { assert(true) }")

    assert (verdict(result), result.line) == ("error:DivisionByZero", 1)


def test_a_refused_test_is_unsupported() -> None:
    assert verdict(only_result("@test @ai fn t() to str")) == "unsupported:llm"


_TABLES = """@table type Note { title: str, done: bool }
@test fn t() {
    assert(db.Note.count() is 0)
    assert(db.Note.insert({ title: "a", done: false }) is Ok(1))
    let id = db.Note.insert({ title: "b", done: true })?
    assert(db.Note.all().map(n => n.title) is ["a", "b"])
    assert(db.Note.filter({ done: true })[0]._id is id)
    assert(db.Note.filter({ nothing: 1 }) is [])
    assert(db.Note.update(1, { done: true }) is Ok(Unit) and db.Note.update(9, { done: true }).is_err())
    assert(db.Note.find(1).unwrap() is { title: "a", done: true, _id: 1 })
    assert(db.Note.filter({ done: true }).count() is 2 and len(db.Note.all()?) is 2)
    let rows = db.Note.filter({ done: true })
    let all = rows.all()?
    assert(rows.count() is 2 and all.count() is 2 and all[1].title is "b")
    assert(db.Note.delete(1) is Ok(Unit) and db.Note.delete(1).is_err())
    assert(db.Note.get(1) is None and db.Note.find(2).unwrap().title is "b")
}"""


def test_tables_are_kept_in_memory() -> None:
    features = Features(database=True)

    assert verdict(only_result(_TABLES, features=features)) == "pass"
    assert verdict(only_result(_TABLES)) == "unsupported:db"


@every_row(
    ("db.Note.where({ a: 1 })", "unsupported:db"),
    ("db.Note.find(1).count()", "unsupported:db"),
    ("db.Note.all().map(n => n).count()", "error:UnknownMethod"),
    ("{ let rows = db.Note.all() let n = rows.limit(1) n }", "unsupported:db"),
    ("{ let titles = [1] let n = titles.count() n }", "error:UnknownMethod"),
    ("[1]?", "pass"),
    ("1?", "error:TypeError"),
    ("db.Note.filter({ a: 1 }).limit(1)", "unsupported:db"),
    ("db.Note.insert(1)", "error:TypeError"),
    ("db.Other.all()", "error:UndefinedName"),
    ("db.Note.nothing()", "error:UnknownMethod"),
)
def test_unsupported_uses_of_tables_are_refused(expression: str, expected: str) -> None:
    """Most chains are refused, also through a name; mistakes are errors; `?` of rows returns the rows (U5)."""
    source = f"@table type Note {{ title: str }}\n@test fn t() {{ let x = {expression} }}"

    assert verdict(only_result(source, features=Features(database=True))) == expected


@every_row(
    ("@require(n > 0)", "f(1)", "pass"),
    ("@require(n > 0)", "f(0)", "error:ContractViolation"),
    ("@ensure(result > n)", "f(1)", "pass"),
    ("@ensure(result < n)", "f(1)", "error:ContractViolation"),
    ("@ensure(result < n, fallback: other)", "f(1)", "pass"),
    ("@invariant(n isnt 3)", "f(3)", "error:ContractViolation"),
    ("@require(1)", "f(1)", "error:TypeError"),
    ("@require(unknown(n))", "f(1)", "pass"),
    ("@pure", "f(1)", "pass"),
)
def test_contracts_are_checked_if_enabled(decorators: str, call: str, expected: str) -> None:
    source = (
        f"{decorators}\nfn f(n: int) to int {{ if n is 1 {{ return n + 1 }} n }}\nfn other() to int {{ return 9 }}\n"
        f"@test fn t() {{ assert({call} >= 0) }}"
    )

    assert verdict(only_result(source, features=Features(check_contracts=True))) == expected
    assert verdict(only_result(source)) == "pass"


def test_an_unreadable_contract_is_noted() -> None:
    source = "@ensure(nothing is result)\nfn f() to int { return 1 }\n@test fn t() { assert(f() is 1) }"

    assert only_result(source, features=Features(check_contracts=True)).notes == (
        "`@ensure` ignored: `nothing` is not defined",
    )
