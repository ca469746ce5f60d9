"""Views, components and pages in hidden tests (U6), and other names that these tests can use."""

import pytest

from mens_pipeline.language.interpreter import Features, ProgramReport, run_with_tests
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.interpreter.verdicts import only_result, verdict

_SEEN = Features(database=True, views=True)

_TALLY = """component Tally(title: str, step: int = 1, attr_class: str = "plain") {
    state count: int = 0
    state log: List[int] = [0]
    derived double = count * 2
    on mount: { print("mounted " + title) }
    effect: { print("watched") }
    on cleanup: { print("gone") }
    view: column(gap=2) {
        heading() { title }
        if double > 2 { text() { double } }
        for entry in log key=entry { list_item(class=attr_class) { entry } }
        button(on_click=fn() { count += step log[0] = count }) { "Add" }
        input(bind=count)
        input(bind=title)
    }
}
"""

_LABEL = """fragment Label(words: str) { strong() { words } }
@v0 "b1" Price { plan: str note?: str }
@loading fn Pending() to Element { return text() { "soon" } }
component Empty() { }
component Hasty() { let x = 1 view: text() { x } }
component Page() { view: column() { Label(words="hi") Price(plan="big") Other() Empty(key=1) } }
type Shape = | Dot | Line(length: int)
fn plain() to int { return 7 }
"""


def _run(candidate: str, body: str) -> ProgramReport:
    return run_with_tests(candidate, f"@test fn t() {{\n{body}\n}}", features=_SEEN)


@pytest.mark.parametrize(
    "claim",
    [
        'shown.find("heading")[0].text() is "Votes"',
        'shown.text() is "Votes 0 Add"',
        'shown.find("column")[0].attribute("gap") is Some(2)',
        'shown.attribute("gap") is None',
        'shown.tag() is "Tally"',
        'shown.find("list_item")[0].attribute("class") is Some("plain")',
        'hidden_output() is "mounted Votes\\nwatched\\n"',
    ],
)
def test_a_component_shows_its_view(claim: str) -> None:
    report = _run(_TALLY, f'let shown = Tally(title="Votes")\nassert({claim})')

    assert report.passed, report


def test_a_component_follows_its_state() -> None:
    body = """let shown = Tally(title="Votes", step=3, class="bold")
    let other = Tally(title="Votes")
    shown.find("button")[0].press()
    assert(shown.text() is "Votes 6 3 Add")
    assert(other.text() is "Votes 0 Add")
    let field = shown.find("input")[0]
    field.enter(5)
    assert(shown.find("input")[0].attribute("bind") is Some(5))
    assert(shown.text().starts_with("Votes 10"))"""
    report = _run(_TALLY, body)

    assert report.passed, report


@pytest.mark.parametrize(
    "claim",
    [
        'Label(words="hi").text() is "hi"',
        'Price(plan="big").attribute("plan") is Some("big")',
        'Page().find("Price")[0].attribute("note") is None',
        'Page().find("strong")[0].text() is "hi"',
        'Page().find("Other")[0].text() is ""',
        'Empty().text() is ""',
        'Pending().text() is "soon"',
        "plain() is 7",
        "Dot() is Dot",
        "Line(length=2) is Line(2)",
        "[1].map(n => n())[0] is 1",
    ],
)
def test_all_tags_are_shown_or_called(claim: str) -> None:
    expected = "error:NotCallable" if "=> n()" in claim else "pass"

    assert verdict(_run(_LABEL, f"assert({claim})").tests[0]) == expected


@every_row(
    ("Label()", "error:ArityError"),
    ('Label(words="a", more=1)', "error:NamedArgument"),
    ('text(class="a").press()', "error:MissingField"),
    ("text(on_click=1).press()", "error:MissingField"),
    ("text().enter(1)", "error:MissingField"),
    ("input(on_change=fn(v) { assert(v is 2) }).enter(2)", "pass"),
    ("input(on_change=fn(v) { assert(v is 2) }).enter(1)", "fail"),
    ("Hasty()", "unsupported:ui"),
    ("Page().nothing()", "error:UnknownMethod"),
    ("text().find(1)", "error:TypeError"),
)
def test_wrong_use_of_views_is_an_error(expression: str, expected: str) -> None:
    assert verdict(_run(_LABEL, f"let x = {expression}").tests[0]) == expected


def test_views_are_refused_unless_enabled() -> None:
    source = f'{_LABEL}\n@test fn t() {{ let x = Label(words="a") }}'

    assert verdict(only_result(source)) == "unsupported:ui"


_PAGE = """state left: int = 3
state seen: List[int] = [1]
derived half = left / 2
on mount: { print("ready") }
fn tick() { left = left - 1 }
fn mark(place: int) { seen[place] = left }
fn wrong() { half = 1 }
fn unknown() { nothing = 1 }
"""


@every_row(
    ("tick() assert(left is 2) assert(half is 1)", "pass"),
    ("assert(left is 3) assert(half is 1)", "pass"),
    ("mark(0) assert(seen is [3])", "pass"),
    ("mark(4)", "error:IndexOutOfRange"),
    ("wrong()", "error:AssignToImmutable"),
    ("unknown()", "error:UndefinedName"),
    ('assert(hidden_output() is "ready\\n")', "pass"),
)
def test_members_of_a_page_are_state(body: str, expected: str) -> None:
    assert verdict(_run(_PAGE, body).tests[0]) == expected


def test_an_import_reads_the_given_code_of_a_task() -> None:
    candidate = "import shop.rules as rules\nfn price() to int { return rules.rate(2) }"
    given = "actor R { on rate(n: int) to int { return n * 3 } }\nlet rules = spawn(R)\n"
    line = "// The answer sees what stands above this line.\n"
    tests = "@test fn t() { assert(price() is 6) }"

    assert run_with_tests(candidate, given + line + tests).passed
    assert verdict(run_with_tests(candidate, tests).tests[0]) == "unsupported:import"


def test_hidden_tests_call_tests_of_the_candidate() -> None:
    candidate = (
        "@test fn right() { assert(1 + 1 is 2) }\n@test fn wrong() { assert(1 + 1 is 3) }\n"
        "fn same() to int { return 1 }\n@test fn same() { assert(false) }\n"
    )

    assert _run(candidate, "right() assert(same() is 1)").passed
    assert verdict(_run(candidate, "wrong()").tests[0]) == "fail"
