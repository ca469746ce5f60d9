"""Corners of the grammar that the shared cases omit; the verdicts are those of the reference compiler."""

from mens_pipeline.language import Mode, analyze
from mens_pipeline_tests.every import every

_ACCEPTED = [
    "@distributed_train() workflow W() { }",
    "@distributed_train(peers=) workflow W() { }",
    "@distributed_train(other=1, 'x',) workflow W() { }",
    "@distributed_train(\n strategy=dp,\n)\n workflow W() { }",
    "state_machine M { state A(n, m: int) on E(a, b,) from A -> A }",
    "state_machine M { state A(\n n,\n) }",
    "partial state_machine M { }",
    "pub partial state_machine M { }",
    '@v0 "id" N { a: int',
    'routes { "/" to A { "/b" to B { } } }',
    'routes { "/" to A with () }',
    "import a as { }",
    "import a as { B as C, D }",
    "import rust:x(rev: r) as y",
    "import rust.x.",
    "component C() { } style { .a { color } }",
    "component C() { } style { .a",
    "type T { a: fn(int, str) to L[int], }",
]
_REJECTED = [
    "@distributed_train(peers=x) workflow W() { }",
    "@distributed_train(strategy=dp",
    "@distributed_train(strategy=dp) fn f() { }",
    "state_machine M { state A(n\n) }",
    "state_machine M { terminal A }",
    "state_machine M { on E A -> B }",
    "partial fn f() { }",
    "partial 'state_machine' M { }",
    "pub partial fn f() { }",
    'routes { "/" to A {',
    "@form F { field a: int",
    "@tokens { ",
    "@push { a: b",
    "actor A { on e() { }",
    "component C() { view: a",
    "state_machine M {",
    "@forall(",
    "@ai(",
    "let x = @cancellable",
    "@ai(model",
    "@cors(origins: [",
    "@uses(net",
    "@auth(((",
    "import rust:x(",
    "component C() { } style { . }",
    "type T = | A(x: int",
    "type T<A> = | B",
    "fn f[T]() { }",
    "@mcp.resource('u', \"d\") fn f() { }",
    "fragment F() { a",
    "let x = (a",
    "let x = [a",
    "let x = { a: 1",
    "let x = row() { a",
    "fn f() uses mcp() { }",
    "fn f() uses mcp(a, b) { }",
    "fn f() uses net, { }",
    '@tokens { color a light: "x" }',
    '@tokens { spacing a "x" }',
    "@deep_link { a: 1 }",
    "let x = workflow.start(1)",
    "let x = workflow",
    "workflow W() uses net { }",
    "activity A() uses net { }",
    "async type T { a: int }",
]


@every("source", [*_ACCEPTED, *_REJECTED])
def test_corner_has_its_verdict(source: str) -> None:
    assert analyze(source).ok is (source in _ACCEPTED)


def test_a_script_continues_after_unclosed_routes() -> None:
    """What ends the list of routes quietly is an error in a file, and a statement in a script (G22, M2)."""
    source = "routes { '/' to A "

    assert not analyze(source, Mode.SOURCE).ok
    assert analyze(source, Mode.SCRIPT).ok
