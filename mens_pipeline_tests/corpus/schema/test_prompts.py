"""Descriptions of declarations for prompts."""

from mens_pipeline.corpus.schema.prompts import describe_shape, mentioned_names, noun_of
from mens_pipeline.language import CONSTRUCTS, Mode, analyze, declaration_spans
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import parse

_SHAPES = [
    ("import a.b, c", "with the paths `a.b`, `c`"),
    ("let x: int = 1", "of the type `int`"),
    ("let x = 1", ""),
    (
        "pub fn f(a: int, b = 2) uses net, mcp(t) to str { }",
        "with the signature `(a: int, b = 2) uses net, mcp(t) to str`",
    ),
    ("fn f() { }", "with the signature `()`"),
    ("type P { x: int, y: List[str] }", "with the fields `x: int`, `y: List[str]`"),
    ("type S =\n | A\n | B(n: int)", "with the variants `A`, `B(n: int)`"),
    ("type S =", ""),
    ("@table type T { a: int }", "with the fields `a: int`"),
    ("@index T.by on (a, b)", "with the columns `a`, `b`"),
    ("component C(a: int) { state n = 0 }", "with the parameters `a: int`, with the state `n`"),
    ("state n = 0\non mount: go()", "with the members `n`, `mount`"),
    ("fragment F(a) { a }", "with the parameters `a`"),
    ('@v0 "i" N { a?: int }', "with the properties `a?: int`"),
    ('routes { "/" to A "/b" to B }', "with the paths `/`, `/b`"),
    ("url R { A, B(?q: str) }", "with the variants `A`, `B(?q: str)`"),
    (
        "state_machine M { state A state B on E from A -> B on E from B -> A }",
        "with the states `A`, `B`, with the events `E`",
    ),
    ("actor A { on e() { } on f() { } }", "with the handlers `e`, `f`"),
    ("@form F { field a: int field b: str }", "with the fields `a`, `b`"),
    ("@tokens { spacing s: '1' }", "with the tokens `spacing s`"),
    ('@test("adds up") fn t() { }', "that checks 'adds up'"),
    ("@test fn t() { }", ""),
    ('@forall("holds") fn t(x: int) { }', "that checks 'holds', with the signature `(x: int)`"),
    ("@forall fn t(x: int) { }", "with the signature `(x: int)`"),
    ('@scheduled("1h") fn s() { }', "that runs every `1h`, with the signature `()`"),
    ("@endpoint(kind: query) fn q() to int { }", "with the signature `() to int`"),
    ('@mcp.tool "d" fn t() { }', "described as 'd', with the signature `()`"),
    ("@mcp.tool fn t() { }", "with the signature `()`"),
    ('@mcp.resource "u" "d" fn r() { }', "at `u`, described as 'd', with the signature `()`"),
    ("workflow W(a: int) to int { }", "with the signature `(a: int) to int`"),
    ("activity A() { }", "with the signature `()`"),
    ("@push { on_register: a }", ""),
]


@every_row(*_SHAPES)
def test_the_shape_describes_the_parts_of_a_declaration(source: str, shape: str) -> None:
    module = analyze(source, Mode.UI).module

    assert module is not None
    (declaration,) = module.declarations
    assert describe_shape(declaration, source) == shape


def test_every_construct_has_a_noun() -> None:
    assert all(noun_of(name).startswith(("a ", "an ", "the ")) for name in CONSTRUCTS)


def test_a_shape_fits_on_a_line() -> None:
    source = "fn f() { }\ntype S =\n | A(x: int)\n"
    module = parse(source)

    assert all("\n" not in describe_shape(span.declaration, source) for span in declaration_spans(source, module))


@every_row(
    ("Use sum_of and Point2 with p2, then stop.", {"Use", "sum_of", "Point2", "p2"}),
    ("write it with `area` and ```\nlet n = 1\n```", {"area", "let", "n"}),
    ("write a helper.\n\nfn half(x: int)", {"fn", "half", "x", "int"}),
    ("write it, please.", set()),
)
def test_names_in_a_prompt_are_found(prompt: str, names: set[str]) -> None:
    assert mentioned_names(prompt) == names
