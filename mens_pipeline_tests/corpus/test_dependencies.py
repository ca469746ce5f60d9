"""A declaration is cut with what it needs."""

import pytest

from mens_pipeline.corpus.dependencies import BETWEEN, Dependencies, declared_names
from mens_pipeline.language import DeclarationSpan, analyze, declaration_spans

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
    module = analyze(source).module

    assert module is not None
    return declaration_spans(source, module)


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("alone", ["alone"]),
        ("Paint", ["Colour", "Paint"]),
        ("mix", ["Colour", "Paint", "mix"]),
        ("is_red", ["Colour", "is_red"]),
        ("ping", ["limit", "ping", "pong"]),
        ("Shelf.by_paint", ["Shelf", "Shelf.by_paint"]),
        ("shelf", ["Shelf", "shelf"]),
        ("mixes", ["Colour", "is_red", "mixes"]),
        (None, ["alone", "Rack", None]),
    ],
)
def test_what_is_named_comes_along(name: str | None, needed: list[str | None]) -> None:
    """Types, variants, constants, functions in a circle, tables, components: in source order."""
    spans = _spans(_SOURCE)
    index = next(index for index, span in enumerate(spans) if span.name == name)
    found = Dependencies(spans, _SOURCE).needed_with(index, 10_000)

    assert found is not None
    assert [spans[other].name for other in found] == needed


def test_what_is_too_long_together_is_nothing() -> None:
    """The limit is on all of it, with what stands between."""
    source = "fn a() { b() }\nfn b() { c() }\nfn c() { }\n"
    dependencies = Dependencies(_spans(source), source)
    sizes = [len(text) + len(BETWEEN) for text in ("fn a() { b() }", "fn b() { c() }", "fn c() { }")]

    assert dependencies.needed_with(0, sum(sizes)) == (0, 1, 2)
    assert dependencies.needed_with(0, sum(sizes) - 1) is None
    assert dependencies.needed_with(1, sum(sizes[1:])) == (1, 2)
    assert dependencies.needed_with(2, sizes[2] - 1) is None


def test_a_name_that_many_declare_brings_all_of_them_or_nothing() -> None:
    """Which one is meant is not known."""
    source = "fn f() { }\n" * 3 + "fn g() { f() }\n"
    dependencies = Dependencies(_spans(source), source)

    assert dependencies.needed_with(3, 1_000) == (0, 1, 2, 3)
    assert dependencies.needed_with(3, 30) is None
    assert declared_names(_spans(source)) == {"f": [0, 1, 2], "g": [3]}
