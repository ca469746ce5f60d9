"""Hidden tests evaluate a candidate, and the candidate cannot affect them."""

import pytest

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language.interpreter import Features, Outcome, ProgramStatus, TextName, run_with_tests
from mens_pipeline.language.interpreter.running import with_given
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.interpreter.verdicts import verdict

_TESTS = """fn close(a: int, b: int) to bool { return (a - b).abs() < 2 }
@test fn doubles() { assert(double(4) is 8) }
@test fn about() {
    assert(close(double(3), 6))
    assert(len([1, 2]) is 2)
    match maybe() { Some(n) => assert(n is 1) None => assert(false) }
}
"""
_GOOD = "fn double(n: int) to int { return n * 2 }\nfn maybe() to Option[int] { return Some(1) }\n"


def _verdicts(candidate: str) -> list[str]:
    return [verdict(result) for result in run_with_tests(candidate, _TESTS).tests]


def test_a_good_candidate_passes() -> None:
    report = run_with_tests(_GOOD + "@test fn own() { assert(false) }", _TESTS)

    assert [result.name for result in report.tests] == ["doubles", "about"]
    assert report.passed


def test_a_wrong_candidate_fails() -> None:
    report = run_with_tests(_GOOD.replace("n * 2", "n * 3"), _TESTS)

    assert [verdict(result) for result in report.tests] == ["fail", "fail"]
    assert (report.tests[0].text, report.tests[0].line, report.error_class) == (TextName.TESTS, 2, "wrong_answer")


def test_an_error_in_the_candidate_has_its_place_in_the_candidate() -> None:
    result = run_with_tests(_GOOD.replace("n * 2", "n / 0"), _TESTS).tests[0]

    assert (verdict(result), result.text, result.line) == ("error:DivisionByZero", TextName.PROGRAM, 1)


@pytest.mark.parametrize(
    "attack",
    [
        "fn doubles() { }",
        "@test fn doubles() { }",
        "@test fn double(n: int) to int { return 0 }",
        "fn close(a: int, b: int) to bool { return true }",
        "let close = fn(a, b) true",
        "fn abs(n: int) to int { return 0 }",
        "type Odd = | Twice(n: int)",
        "@table type len { a: int }",
        'let tail = "never closed',
        "let x = 1 @test fn doubles() { assert(true) }",
    ],
)
def test_names_of_the_candidate_do_not_affect_the_tests(attack: str) -> None:
    wrong = _GOOD.replace("n * 2", "n * 5")
    rejected = attack.endswith("closed")

    assert _verdicts(wrong + attack) == ([] if rejected else ["fail", "fail"])
    assert _verdicts(_GOOD + attack) == ([] if rejected else ["pass", "pass"])


@every_row(
    ("fn assert(c: bool) { }", "assert"),
    ("fn assert_eq(a: int, b: int) { }", "assert_eq"),
    ("let assert = 1", "assert"),
    ("type T = | assert", "assert"),
    ("fn len(xs: List[int]) to int { return 2 }", "len"),
    ("let len = fn(x) 2", "len"),
    ("actor len { on e() { } }", "len"),
    ("workflow len() { }", "len"),
    ("component len() { }", "len"),
    ("import a.b as len", "len"),
    ("type T = | n", "n"),
)
def test_redefined_names_of_the_tests_fail_them(attack: str, name: str) -> None:
    report = run_with_tests(_GOOD + attack, _TESTS)

    assert [result.outcome for result in report.tests] == [Outcome.FAILED, Outcome.FAILED]
    assert f"redefines `{name}`" in report.tests[0].message
    assert not report.passed


def test_candidate_keeps_its_own_names() -> None:
    candidate = (
        "fn close(n: int) to int { return n + n }\nfn double(n: int) to int { return close(n) }\n"
        "fn maybe() to Option[int] { return Some(1) }\nlet unused = 1\n"
    )

    assert _verdicts(candidate) == ["pass", "pass"]


def test_the_tests_may_use_constants_and_variants_of_the_candidate() -> None:
    candidate = "let LIMIT = 3\ntype Colour = | Red | Mix(n: int)\nfn pick() to Colour { return Mix(LIMIT) }"
    tests = "@test fn t() { assert(match pick() { Red => 0 Mix(n) => n } is LIMIT) }"

    assert run_with_tests(candidate, tests).passed


@pytest.mark.parametrize("own", ["", "@table type Word { text: str }\n"])
def test_the_tests_see_the_tables_of_the_candidate(own: str) -> None:
    candidate = "@table type Note { title: str }\nfn keep(t: str) to int { return db.Note.insert({ title: t })? }"
    tests = own + '@test fn t() { assert(keep("a") is 1) assert(db.Note.all().map(n => n.title) is ["a"]) }'
    if own:
        tests += '\n@test fn u() { assert(db.Word.insert({ text: "b" }) is Ok(1)) assert(db.Note.count() is 0) }'
    report = run_with_tests(candidate, tests, features=Features(database=True))

    assert [verdict(result) for result in report.tests] == ["pass"] * len(report.tests)
    assert verdict(run_with_tests(candidate, tests).tests[0]) == "unsupported:db"


def test_a_rejected_candidate_has_diagnostics() -> None:
    report = run_with_tests("fn f(", _TESTS)

    assert (report.status, report.error_class, len(report.diagnostics)) == (ProgramStatus.REJECTED, "parse", 1)


@every_row(
    ("@test fn t( {", r"hidden tests are rejected at line 1, column 13: .* Mend the task\."),
    ("fn f() { }", r"hidden tests hold no `@test` and no `@forall`\. Add one to the task\."),
)
def test_broken_tests_are_a_mistake_of_the_task(tests: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        run_with_tests(_GOOD, tests)


_GIVEN = """type Shape = | Circle(r: int) | Dot
fn square(n: int) to int { return n * n }
"""
_AREA = "fn area(s: Shape) to int { return match s { Dot => 0 Circle(r) => 3 * square(r) } }\n"


def test_a_candidate_uses_the_given_code_of_the_task() -> None:
    tests = with_given(_GIVEN, "@test fn t() { assert(area(Circle(2)) is 12) assert(area(Dot) is 0) }")

    assert run_with_tests(_AREA, tests).passed
    assert run_with_tests(_GIVEN + _AREA, tests).passed
    assert not run_with_tests(_AREA.replace("3 *", "4 *"), tests).passed


def test_a_candidate_sees_no_helpers_of_the_tests() -> None:
    helper = "fn helper(n: int) to int { return n }\n"
    tests = with_given(_GIVEN, helper + "@test fn t() { assert(f(2) is helper(2)) }")
    report = run_with_tests("fn f(n: int) to int { return helper(n) }", tests)

    assert verdict(report.tests[0]) == "error:UndefinedName"
    assert run_with_tests("fn f(n: int) to int { return square(n) - n }", tests).passed


def test_without_given_code_tests_are_unchanged() -> None:
    assert with_given(" \n", "@test fn t() { }") == "@test fn t() { }"
