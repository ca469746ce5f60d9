"""Programs become records, each declaration with its dependencies."""

from collections import Counter

import pytest

from mens_pipeline.corpus.extract.extractors import BETWEEN, Dependencies, extract_vox
from mens_pipeline.corpus.schema.account import Drop
from mens_pipeline.corpus.schema.reasons import DropReason
from mens_pipeline.corpus.schema.records import MAX_TEXT, ExtractedRecord, SourceFile, SourceKind
from mens_pipeline.language import DeclarationSpan, Mode, construct_of, declaration_spans
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import conformance_cases, golden_programs, parse

_SOURCE = """import std.fs
let limit = 3
type Colour = | Red | Blue(depth: int)
type Paint { colour: Colour, litres: int }
fn mix(p: Paint) to Paint { return p }
fn is_red(c: Colour) to bool { return match c { Red => true, _ => false } }
fn alone() to int { return 1 }
fn ping(n: int) to int { return if n > limit { pong(n - 1) } else { 0 } }
fn pong(n: int) to int { return ping(n) }
@table type Shelf { paint: str }
@index Shelf.by_paint on (paint)
fn shelf() { db.Shelf.all() }
@test fn mixes() { assert(is_red(Red)) }
component Rack() { view: row() { alone() } }
routes { "/" to Rack }
"""


def _spans(source: str) -> tuple[DeclarationSpan, ...]:
    module = parse(source)
    return declaration_spans(source, module)


@every_row(
    ("alone", ["alone"]),
    ("Paint", ["Colour", "Paint"]),
    ("mix", ["Colour", "Paint", "mix"]),
    ("is_red", ["Colour", "is_red"]),
    ("ping", ["limit", "ping", "pong"]),
    ("Shelf.by_paint", ["Shelf", "Shelf.by_paint"]),
    ("shelf", ["Shelf", "shelf"]),
    ("mixes", ["Colour", "is_red", "mixes"]),
    (None, ["alone", "Rack", None]),
)
def test_named_declarations_are_included(name: str | None, needed: list[str | None]) -> None:
    spans = _spans(_SOURCE)
    index = next(index for index, span in enumerate(spans) if span.name == name)
    found = Dependencies(spans, _SOURCE).needed_with(index, 10_000)

    assert found is not None
    assert [spans[other].name for other in found] == needed


def test_dependencies_beyond_the_limit_are_refused() -> None:
    source = "fn a() { b() }\nfn b() { c() }\nfn c() { }\n"
    dependencies = Dependencies(_spans(source), source)
    sizes = [len(text) + len(BETWEEN) for text in ("fn a() { b() }", "fn b() { c() }", "fn c() { }")]

    assert dependencies.needed_with(0, sum(sizes)) == (0, 1, 2)
    assert dependencies.needed_with(0, sum(sizes) - 1) is None
    assert dependencies.needed_with(1, sum(sizes[1:])) == (1, 2)
    assert dependencies.needed_with(2, sizes[2] - 1) is None


def test_a_name_of_several_declarations_includes_all_or_none() -> None:
    source = "fn f() { }\n" * 3 + "fn g() { f() }\n"
    dependencies = Dependencies(_spans(source), source)

    assert dependencies.needed_with(3, 1_000) == (0, 1, 2, 3)
    assert dependencies.needed_with(3, 30) is None


_PROGRAM = """// ---
// title: "Paint"
// description: "Mixes paint."
// training_weight: 2.0
// ---
// @training_prompt: Write a paint mixer.
// A colour.
type Colour = | Red | Blue

// Says whether it is red.
// ANCHOR: show
fn is_red(c: Colour) to bool { return match c { Red => true, _ => false } }

@endpoint(kind: query) fn count() to int { return 1 }
"""


def _records(source: str, path: str = "a/b.vox") -> tuple[ExtractedRecord, ...]:
    found = extract_vox(SourceFile(path, source.encode(), "c0ffee"))

    assert isinstance(found, tuple)
    return found


def test_a_file_is_a_record_with_its_prompt_and_metadata() -> None:
    whole = _records(_PROGRAM)[0]

    assert (whole.prompt, whole.context, whole.weight) == ("Write a paint mixer.", "Mixes paint.", 2.0)
    assert (whole.category, whole.difficulty, whole.constructs) == ("query", 4, {"function": 1, "query": 1, "type": 1})
    assert (whole.source.kind, whole.source.span) == (SourceKind.VOX_FILE, (0, len(_PROGRAM)))
    assert whole.source.lines == (1, 14)
    assert whole.text.startswith("// A colour.\ntype Colour")
    assert whole.metadata == {"title": "Paint", "description": "Mixes paint.", "training_weight": 2.0}
    assert (whole.source.commit, len(whole.source.blob)) == ("c0ffee", 64)


@pytest.mark.seed_row(49)
def test_each_declaration_is_a_record_with_its_dependencies() -> None:
    _, colour, is_red, count = _records(_PROGRAM)

    assert [(r.name, r.category) for r in (colour, is_red, count)] == [
        ("Colour", "type"),
        ("is_red", "function"),
        ("count", "query"),
    ]
    assert is_red.context == "Says whether it is red."
    assert is_red.text.startswith("type Colour = | Red | Blue\n\nfn is_red")
    assert _PROGRAM[slice(*is_red.source.span)].startswith("fn is_red(c: Colour)")
    assert is_red.source.lines == (12, 12)
    assert (count.prompt, count.context, count.source.kind) == (None, None, SourceKind.VOX_DECLARATION)


def test_a_declaration_that_needs_the_whole_file_gives_no_second_record() -> None:
    (only,) = _records("// Doubles.\nfn f(n: int) to int { return n * 2 }\n")

    assert (only.context, only.category) == ("Doubles.", "function")


def test_a_title_replaces_a_missing_description() -> None:
    assert _records("// ---\n// title: T\n// description: 3\n// ---\nfn f() { }\n")[0].context == "T"


def test_a_reactive_file_is_read_in_its_mode() -> None:
    """The name selects the mode (M6)."""
    assert _records("state n = 0\nfn f() { }\n", "x.vox.ui")[0].constructs == {"function": 1, "reactive_module": 1}


@pytest.mark.seed_row(2)
@every_row(
    (b"\xff", DropReason.NOT_UTF8, 1),
    (b"// ---\nfn f() { }\n", DropReason.BAD_FRONTMATTER, 1),
    (b"// ---\n// training_weight: no\n// ---\nfn f() { }\n", DropReason.BAD_FRONTMATTER, 1),
    (b"// ---\n// training_eligible: false\n// ---\nfn f() { }\n", DropReason.OPTED_OUT, 1),
    (b"// ---\n// status: deprecated\n// ---\nfn f() { }\n", DropReason.DEPRECATED, 1),
    (b"// vox:skip\nfn f() { }\n", DropReason.SKIP_MARKER, 1),
    (b"fn f() { }\n\nx\n", DropReason.REJECTED, 3),
    (b"// nothing\n", DropReason.NO_DECLARATION, 1),
)
def test_unusable_programs_are_dropped_with_a_reason(data: bytes, reason: DropReason, line: int) -> None:
    drop = extract_vox(SourceFile("a.vox", data))

    assert isinstance(drop, Drop)
    assert (drop.reason, drop.line, drop.path) == (reason, line, "a.vox")
    assert drop.detail


def test_a_file_beyond_the_limit_still_gives_its_declarations() -> None:
    source = "".join(f"// A comment of a function.\nfn f{number}() {{ }}\n\n" for number in range(2_000))
    calls = " ".join(f"f{number}()" for number in range(2_000))
    records = _records(f"{source}fn all() {{ {calls} }}\n\nfn huge() to str {{ return '{'x' * MAX_TEXT}' }}\n")

    assert [record.name for record in records] == [f"f{number}" for number in range(2_000)]
    assert {record.source.kind for record in records} == {SourceKind.VOX_DECLARATION}


def test_a_text_of_the_maximum_length_is_kept() -> None:
    frame = "let x = ''\n"
    (kept,) = _records(frame.replace("''", f"'{'x' * (MAX_TEXT - len(frame))}'"))
    drop = extract_vox(SourceFile("a.vox", frame.replace("''", f"'{'x' * (MAX_TEXT - len(frame) + 1)}'").encode()))

    assert len(kept.text) == MAX_TEXT
    assert isinstance(drop, Drop)
    assert drop.reason is DropReason.TOO_LARGE
    assert "65536 characters" in drop.detail


@pytest.mark.parametrize("second", ["", "fn g() { }\n"])
def test_a_prompt_that_is_too_long_is_a_mistake_of_the_file(second: str) -> None:
    prompt = f"// @training_prompt: {'x' * (MAX_TEXT + 1)}\n"
    drop = extract_vox(SourceFile("a.vox", f"{prompt}fn f() {{ }}\n\n{second}".encode()))

    assert isinstance(drop, Drop)
    assert drop.reason is DropReason.BAD_FRONTMATTER
    assert "65537 characters" in drop.detail


def test_long_descriptions_are_cut() -> None:
    whole = _records(f"// ---\n// title: {'x' * 900}\n// ---\n// {'y' * 900}\nfn f() {{ }}\n\nfn g() {{ }}\n")

    assert [record.context and len(record.context) for record in whole] == [400, 400, None]


@pytest.mark.slow
def test_every_record_of_an_accepted_program_is_accepted() -> None:
    suffixes = {Mode.SOURCE: "vox", Mode.UI: "vox.ui"}  # no file is a script
    cases = [case for case in conformance_cases() if case.ok and case.mode in suffixes]
    programs = {**golden_programs(), **{f"{case.id}.{suffixes[case.mode]}": case.source for case in cases}}
    num_pieces = 0
    for name, source in programs.items():
        found = extract_vox(SourceFile(name, source.encode(), "c0ffee"))
        for record in found if isinstance(found, tuple) else ():
            module = parse(record.text, SourceFile(name, b"").mode)
            assert Counter(construct_of(each).name for each in module.declarations) == record.constructs
            num_pieces += record.source.kind is SourceKind.VOX_DECLARATION

    assert num_pieces > 1000
