"""Constructs, histogram (A10), difficulty."""

from typing import get_args

import pytest

from mens_pipeline.language import CONSTRUCTS, Mode, construct_of, difficulty, histogram
from mens_pipeline.language.ast.declarations import Declaration
from mens_pipeline.language.taxonomy import kind_of
from mens_pipeline_tests.language.examples import parse

_EXAMPLES = {
    "import": "import a",
    "const": "let x = 1",
    "function": "fn f() { }",
    "type": "type T { a: int }",
    "test": "@test fn t() { }",
    "forall": "@forall fn t(x: int) { }",
    "component": "component C() { }",
    "fragment": "fragment F() { a }",
    "v0_component": '@v0 "id" N { }',
    "table": "@table type T { a: int }",
    "index": "@index T.by on (a)",
    "loading": "@loading fn l() { }",
    "design_tokens": "@tokens { }",
    "query": "@endpoint(kind: query) fn q() { }",
    "mutation": "@endpoint(kind: mutation) fn m() { }",
    "server": "@endpoint(kind: server) fn s() { }",
    "routes": "routes { }",
    "url": "url R { }",
    "scheduled": '@scheduled("1h") fn s() { }',
    "form": "@form F { }",
    "back_button": "@back_button { }",
    "deep_link": "@deep_link { }",
    "push": "@push { }",
    "reactive_module": "state n = 0",
    "state_machine": "state_machine M { }",
    "actor": "actor A { }",
    "activity": "activity A() { }",
    "workflow": "workflow W() { }",
    "mcp_tool": "@mcp.tool fn t() { }",
    "mcp_resource": '@mcp.resource "u" "d" fn r() { }',
}


@pytest.mark.seed_row(68)
@pytest.mark.parametrize(("name", "source"), _EXAMPLES.items(), ids=_EXAMPLES)
def test_every_construct_can_be_produced(name: str, source: str) -> None:
    (declaration,) = parse(source, Mode.UI).declarations

    assert construct_of(declaration) is CONSTRUCTS[name]
    assert kind_of(declaration) == CONSTRUCTS[name].kind


@pytest.mark.seed_row(49)
def test_every_declaration_kind_is_a_construct() -> None:
    assert {kind.__name__ for kind in get_args(Declaration)} == {c.kind for c in CONSTRUCTS.values()}
    assert set(_EXAMPLES) == set(CONSTRUCTS)


def test_histogram_counts_declarations_by_name() -> None:
    """One import with several items counts once; endpoints and workflows are `other` (A10)."""
    source = (
        "import a, b\nfn f() { }\nfn g() { }\n@test fn t() { }\n@forall fn u() { }\n@endpoint(kind: query) fn q() { }\n"
    )

    assert histogram(parse(source)) == {"fn": 2, "import": 1, "other": 1, "test": 2}


def test_difficulty_is_that_of_the_hardest_declaration() -> None:
    """1 to 10, 5 for a text without declarations."""
    assert difficulty(parse("let x = 1\nworkflow W() { }")) == 7
    assert difficulty(parse("")) == 5
    assert all(1 <= construct.difficulty <= 10 for construct in CONSTRUCTS.values())
