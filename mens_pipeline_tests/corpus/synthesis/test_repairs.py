"""Programs broken as people break them."""

from functools import cache
from random import Random

import pytest

from mens_pipeline.corpus.synthesis.program import MAX_LINES
from mens_pipeline.corpus.synthesis.repairs import BREAKAGES, repair
from mens_pipeline.corpus.synthesis.sample import Sample
from mens_pipeline.language import CONSTRUCTS, Diagnostic, analyze
from mens_pipeline_tests.corpus.rows import golden_read, program_of
from mens_pipeline_tests.every import every

_SEEDS = 60
_PROGRAMS_OF_ALL = 45
"""How many of the golden programs each breakage is tried on."""


def _random(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - a reproducible draw, no secret


def _parts(sample: Sample) -> tuple[str, str, list[str]]:
    """Request, broken program, and the lines of the report."""
    request, rest = sample.prompt.split("\n\n", 1)
    broken, report = rest.rsplit("\n\n", 1)
    return request, broken + "\n", report.split("\n")[1:]


def _broken(name: str, source: str) -> set[str]:
    """All that a breakage makes of a program, with different seeds."""
    program = program_of(source)
    found = [repair(program, name, _random(seed)) for seed in range(_SEEDS)]
    return {_parts(sample)[1] for sample in found if sample is not None}


def _line(error: Diagnostic) -> str:
    return f"{error.start.line}:{error.start.column + 1}: error[{error.code}]: {error.message}"


@every("name", BREAKAGES)
def test_golden_programs_are_broken_and_mended(name: str) -> None:
    """The prompt holds a rejected program and what the front end says of it, the answer the accepted one."""
    for number, program in enumerate(golden_read()[:: len(golden_read()) // _PROGRAMS_OF_ALL]):
        sample = repair(program, name, _random(number))
        if sample is None:
            continue
        _, broken, report = _parts(sample)
        errors = analyze(broken, program.mode).errors
        shown = [line for line in report if not line.startswith("  = help: ")]
        advice = [line.removeprefix("  = help: ") for line in report if line.startswith("  = help: ")]
        assert shown
        assert shown == [_line(error) for error in errors[:3]]
        assert set(advice) <= {error.advice for error in errors}
        assert analyze(sample.response, sample.mode).ok
        assert sample.response == program.source != broken
        assert (sample.template, sample.mode, sample.origin) == (f"repair/{name}", program.mode, program.origin)
        assert sample.construct in CONSTRUCTS


def test_every_breakage_breaks_some_golden_program() -> None:
    """None is there for nothing."""
    for name in BREAKAGES:
        assert any(repair(program, name, _random(0)) for program in golden_read())


@every("name", BREAKAGES)
def test_the_same_generator_gives_the_same_task(name: str) -> None:
    """Another machine makes the same data."""
    for program in golden_read()[::40]:
        assert repair(program, name, _random(5)) == repair(program, name, _random(5))


@every("name", BREAKAGES)
def test_a_program_without_a_place_for_it_is_left_alone(name: str) -> None:
    """There is hardly anything in it to break: no statement in the one program, no brace in the other."""
    source = "import a.b" if name in {"missing-closing-brace", "stray-brace"} else "url P { A }"

    assert _broken(name, source) == set()


_FIELDS = "\n    title: str\n    tags: List[str]\n"
_SOURCE = """// Shelf.
@table type Book {
    title: str
    tags: List[str]
}

@endpoint(kind: query) @uses(db)
fn find(tag: str, most: Option[int]) uses db to List[Book] {
    let mut hits = 0
    for book in db.Book.all() {
        if tag is "" or book.title is tag and hits < 3 {
            hits += 1
        } else if tag.is_empty() { return [] } else { hits = 0 }
    }
    return db.Book.filter(book => book.title is tag)
}

component Shelf(tag: str) {
    state shown: bool = true
    view: row(gap=2) { button(on_click=fn() { shown = false }) { "Hide" } }
}

state_machine Loan { state Out state Back on Bring from Out -> Back }

fn said(book: Option[str]) to str {
    return match book {
        Some(title) => "have " + title
        None => "none"
    }
}
"""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("missing-closing-brace", "    tags: List[str]\n}\n", "    tags: List[str]\n"),
        ("missing-closing-brace", "{ return [] }", "{ return []"),
        ("missing-opening-brace", "to str {\n", "to str\n"),
        ("missing-closing-parenthesis", "title is tag)\n", "title is tag\n"),
        ("missing-closing-bracket", "tags: List[str]", "tags: List[str"),
        ("stray-brace", '"none"\n    }\n', '"none"\n    }\n    }\n'),
        ("stray-parenthesis", "title is tag)\n", "title is tag))\n"),
        ("mismatched-bracket", "title is tag)\n", "title is tag]\n"),
        ("unterminated-string", '"Hide" }', '"Hide }'),
        ("missing-colon", "title: str", "title str"),
        ("missing-comma", "tag: str, most", "tag: str most"),
        ("double-comma", "tag: str, most", "tag: str,, most"),
        ("missing-equals", "hits = 0\n", "hits 0\n"),
        ("missing-return-keyword", ") to str", ") str"),
        ("wrong-return-keyword", ") to str", ") : str"),
        ("trailing-comma-in-parameters", "Option[int])", "Option[int],)"),
        ("missing-arm-arrow", 'None => "none"', 'None "none"'),
        ("old-arm-arrow", 'None => "none"', 'None -> "none"'),
        ("colon-for-argument", "gap=2", "gap: 2"),
        ("spelled-transition", "-> Back", "to Back"),
        ("double-ampersand", "and hits", "&& hits"),
        ("double-bar", "or book.title", "|| book.title"),
        ("single-equals", 'tag is ""', 'tag = ""'),
        ("triple-equals", 'tag is ""', 'tag === ""'),
        ("foreign-function-word", "fn said", "def said"),
        ("foreign-let", "let mut", "var mut"),
        ("else-if-as-one-word", "else if", "elif"),
        ("retired-endpoint", "@endpoint(kind: query)", "@query"),
        ("retired-component", "component", "@component"),
        ("angle-brackets", "List[Book]", "List<Book>"),
        ("question-mark-type", "Option[int]", "int?"),
        ("array-type", "List[Book]", "Book[]"),
        ("bar-lambda", "book => book", "|book| book"),
        ("empty-arrow-lambda", "fn() {", "() => {"),
        ("parenthesised-head", "for book in db.Book.all() {", "for (book in db.Book.all()) {"),
        ("increment", "hits += 1", "hits++"),
        ("parenthesised-fields", f"Book {{{_FIELDS}}}", f"Book ({_FIELDS})"),
        ("brace-on-its-own-line", "to str {", "to str\n{"),
        ("line-break-before-operator", '"have " + title', '"have "\n            + title'),
        ("parameters-on-lines", "tag: str, most: Option[int]", "\n    tag: str,\n    most: Option[int]\n"),
        ("effects-behind-result", "uses db to List[Book]", "to List[Book] uses db"),
    ],
)  # fmt: skip
def test_a_breakage_is_the_mistake_of_its_name(name: str, old: str, new: str) -> None:
    """One of the places, exactly so."""
    assert _SOURCE.count(old) == 1
    assert _SOURCE.replace(old, new) in _broken(name, _SOURCE)


@pytest.mark.parametrize(
    ("name", "source", "forms"),
    [
        ("misspelled-keyword", "type A { }", {"ytpe", "tpye", "tyep", "ttype", "tyype", "typpe", "tpe", "tye", "typ"}),
        ("misspelled-decorator", "@ai fn f()", {"@ia", "@aai"}),
    ],
)
def test_words_are_misspelt_as_by_a_hasty_hand(name: str, source: str, forms: set[str]) -> None:
    """Two letters swapped, one doubled, one left out."""
    word = source.split(maxsplit=1)[0]

    assert _broken(name, source) <= {source.replace(word, form) + "\n" for form in forms}
    assert len(_broken(name, source)) > 1


def test_imports_and_types_of_other_languages() -> None:
    """Words that open a declaration elsewhere."""
    assert "use std.log\n" in _broken("foreign-import", "import std.log\n")
    assert _broken("foreign-type-word", "type A { x: int }\n") == {
        f"{word} A {{ x: int }}\n" for word in ("struct", "class", "interface")
    }
    assert _broken("foreign-type-word", "@table type A { x: int }\n") == set()


@cache
def _report(seed: int) -> tuple[str, ...]:
    sample = repair(program_of(_SOURCE), "retired-endpoint", _random(seed))
    assert sample is not None
    assert sample.construct == "query"
    return tuple(sample.prompt.split("\n\n")[-1].split("\n"))


def test_the_report_is_that_of_the_front_end_with_and_without_advice() -> None:
    """Place with columns from 1, code, message; the advice below it."""
    place = "7:1: error[unknown-decorator]: there is no decorator `@query`"
    advice = "  = help: Write `@endpoint(kind: query)`."
    reports = {report[1:] for report in map(_report, range(_SEEDS))}

    assert reports == {(place,), (place, advice)}
    assert all(report[0].endswith(":") for report in map(_report, range(_SEEDS)))


def test_several_errors_are_reported_together() -> None:
    """One slip can be wrong in two places."""
    sample = repair(program_of("@search(into=T)\nfn f() to int\n"), "colon-for-argument", _random(0))

    assert sample is not None
    assert [line.split(":")[0] for line in _parts(sample)[2] if "error[" in line] == ["1", "2"]


def test_what_stays_acceptable_is_not_broken() -> None:
    """`const x = 1` in a body is a run of statements (N9), a missing comma between fields none at all."""
    assert _broken("foreign-let", "fn f() { let x = 1 }\n") == set()
    assert _broken("missing-comma", "type P { a: int, b: int }\n") == set()


def test_programs_with_warnings_and_long_ones_are_left_alone() -> None:
    """The answer should be clean, the task short."""
    assert repair(program_of("fn f() -> int { return 1 }"), "missing-closing-brace", _random(0)) is None
    assert (
        repair(program_of("fn f() { }" + "\n" * MAX_LINES + "fn g() { }"), "missing-closing-brace", _random(0)) is None
    )


def test_a_breakage_must_be_one_of_those_there_are() -> None:
    """A misspelt name is a mistake of the caller."""
    with pytest.raises(KeyError):
        repair(program_of("fn f() { }"), "missing", _random(0))
