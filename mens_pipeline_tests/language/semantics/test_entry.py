"""The entry points: any accepted text gets its findings, in time, in order, without an exception."""

import sys
from time import perf_counter, process_time

import pytest

from mens_pipeline.language import Code, Severity, analyze, analyze_uncached
from mens_pipeline.language.names.declarations import MAX_FINDINGS
from mens_pipeline.language.semantics import first_error, semantic_diagnostics, semantic_records
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import conformance_cases, parse, reference_examples
from mens_pipeline_tests.language.semantics.tables import diagnostics_of
from mens_pipeline_tests.language.test_nesting import NESTED


def _is_resolved(source: str) -> bool:
    module = analyze(source).module
    return module is not None and first_error(module, source) is None


@every_row(
    ("fn f() to int { return 1 }", True),
    ("fn f() to int { return x }", False),
    ("fn f() to int { return", False),
    ("fn f(n: int) { match n { _ => 1 2 => 3 } }", True),
)
def test_programs_without_errors_are_resolved(source: str, verdict: bool) -> None:  # noqa: FBT001 - a table
    assert _is_resolved(source) is verdict


@pytest.mark.parametrize(
    "source",
    [
        "fn f(n: int) to int { return twice(n) }",
        "fn f(shape: Shape) to List[Shape] { return [shape] }",
        "fn f(s: Any) to int { match s { Dot => 1, Bar(n) => n, _ => 0 } }",
        "fn f() { db.Note.all() }\n@table type Other { n: int }",
        "component Page() { view: Shape() }",
        'routes { "/" to Pages }\ncomponent Page() { view: row() }',
    ],
)
def test_assumed_names_need_no_declaration(source: str) -> None:
    module = parse(source)
    assumed = frozenset(("twice", "Shape", "Dot", "Bar", "Note", "Pages"))

    assert semantic_diagnostics(module, source) != ()
    assert semantic_diagnostics(module, source, assumed) == ()


def test_declarations_take_precedence_over_assumed_names() -> None:
    source = "type P { x: int }\nfn f(p: P) to int { return p.y }\nfn g(m: Map[int, int, int]) { }"
    found = semantic_diagnostics(parse(source), source, frozenset(("P", "Map")))

    assert [one.code for one in found] == [Code.UNKNOWN_FIELD, Code.WRONG_ARGUMENT_COUNT]


def test_places_count_bytes_lines_and_characters() -> None:
    (found,) = diagnostics_of('fn f() {\n    let s = "é"  x\n}')

    assert (found.start.offset, found.start.line, found.start.column) == (27, 2, 17)
    assert (found.end.offset, found.severity) == (28, Severity.ERROR)


def test_records_have_the_fields_of_a_verdict_and_a_severity() -> None:
    (record,) = semantic_records(diagnostics_of("fn f() { x }"))

    assert record == {
        "severity": "error",
        "line": 1,
        "column": 9,
        "offset": 9,
        "code": "unknown-name",
        "message": "no name `x` is known here",
        "advice": None,
    }


@pytest.mark.parametrize(
    "source",
    [
        "".join(f"fn f{number}() {{ missing{number} }}\n" for number in range(300)),
        "fn f() {" + "x.y z " * 300 + "}",
        "fn f() {" + "'a' - 1 " * 300 + "}",
        "fn f(s: str) {" + "s.fold() " * 300 + "}",
        "".join(f"fn f{number}() to int {{ return true }}\n" for number in range(300)),
    ],
)
def test_the_number_of_findings_is_bounded(source: str) -> None:
    assert len(diagnostics_of(source)) == MAX_FINDINGS


@pytest.mark.parametrize("form", NESTED, ids=str)
def test_deep_nesting_is_walked(form: str) -> None:
    limit = sys.getrecursionlimit()
    diagnostics_of(NESTED[form](500))

    assert sys.getrecursionlimit() == limit


def test_a_text_that_is_too_deep_gives_a_warning() -> None:
    (found,) = diagnostics_of("fn f(x) { x" + ".f()" * 60_000 + " }")

    assert (found.code, found.severity, found.start.line) == (Code.NESTING_LIMIT, Severity.WARNING, 1)


def test_long_chains_of_operators_are_walked() -> None:
    (found,) = diagnostics_of("fn f(x) { " + "x + " * 50_000 + "y }")

    assert found.code is Code.UNKNOWN_NAME


def test_findings_of_conformance_programs_are_reproducible() -> None:
    for case in (*conformance_cases(), *reference_examples()):
        module = analyze(case.source, case.mode).module
        if module is not None:
            assert semantic_diagnostics(module, case.source) == semantic_diagnostics(module, case.source)


def _program(num_functions: int) -> str:
    return "".join(
        f"fn f{index}(a: int, b: str) to int {{\n    let mut x = a + {index}\n    if x > 3 {{ x = x + len(b) }}\n"
        f"    return f{max(0, index - 1)}(x, b)\n}}\n"
        for index in range(num_functions)
    )


def test_time_grows_with_length_and_stays_below_twice_that_of_parsing() -> None:
    """The best of three, on a program of a quarter of a megabyte and on one a fifth as long."""
    seconds = {}
    for size in (400, 2000):
        source = _program(size)
        parses, walks = [], []
        for _ in range(3):
            begin = process_time()
            module = analyze_uncached(source).module
            middle = process_time()
            assert module is not None
            assert semantic_diagnostics(module, source) == ()
            parses.append(middle - begin)
            walks.append(process_time() - middle)
        seconds[size] = (min(parses), min(walks))

    # Coverage slows the walk down.
    assert seconds[2000][1] < (2 if sys.gettrace() is None else 4) * seconds[2000][0]
    assert seconds[2000][1] < 3 * 5 * seconds[400][1]


def test_nested_compound_targets_take_no_exponential_time() -> None:
    source = "1"
    for _ in range(40):
        source = f"xs[(fn() {{ xs[{source}] += 1 }})()]"
    begin = perf_counter()
    diagnostics_of(f"fn f(xs) {{ {source} += 1 }}")

    assert perf_counter() - begin < 5


def test_nested_patterns_take_no_exponential_time() -> None:
    """After some thousand comparisons a `match` counts as complete."""
    columns = 24
    arms = "\n".join(
        "(" + ", ".join("Some(_)" if place == hit else "_" for place in range(columns)) + ") => 1,"
        for hit in range(columns)
    )
    subject = "(" + ", ".join("x" for _ in range(columns)) + ")"
    begin = perf_counter()
    diagnostics_of(f"fn f(x: Option[int]) {{ match {subject} {{ {arms}\n }} }}")

    assert perf_counter() - begin < 5
