"""A declaration is cut with what it needs."""

import pytest

from mens_pipeline.corpus.dependencies import needed_with
from mens_pipeline.language import analyze, declaration_spans

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
    module = analyze(_SOURCE).module
    assert module is not None
    spans = declaration_spans(_SOURCE, module)
    index = next(index for index, span in enumerate(spans) if span.name == name)

    assert [spans[other].name for other in needed_with(index, spans, _SOURCE)] == needed
