"""Deep, huge and hostile texts get a verdict, in time, without an exception."""

import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mens_pipeline.language import Code, Mode, analyze, analyze_bytes
from mens_pipeline.language.front_end import DeepStack, analyze_uncached
from mens_pipeline.language.parser.cursor import MAX_NESTING
from mens_pipeline.language.semantics import semantic_diagnostics
from mens_pipeline_tests.every import every
from mens_pipeline_tests.speed import assert_linear

_LEVELS = 500

NESTED: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: "let x = " + "(" * n + "1" + ")" * n,
    "tuples": lambda n: "let x = " + "(" * n + "1" + ",)" * n,
    "lists": lambda n: "let x = " + "[" * n + "1" + "]" * n,
    "objects": lambda n: "let x = " + "{ a: " * n + "1" + " }" * n,
    "blocks": lambda n: "fn f() " + "{" * n + "}" * n,
    "not": lambda n: "let x = " + "not " * n + "a",
    "minus": lambda n: "let x = " + "- " * n + "a",
    "if": lambda n: "fn f() { " + "if a { " * n + "}" * n + " }",
    "if conditions": lambda n: "fn f() { " + "if " * n + "a" + " { }" * n + " }",
    "else": lambda n: "fn f() { " + "if a { } else { " * n + "}" * n + " }",
    "else if": lambda n: "fn f() { if a { }" + " else if a { }" * n + " }",
    "while": lambda n: "fn f() { " + "while a { " * n + "}" * n + " }",
    "loop": lambda n: "fn f() { " + "loop { " * n + "}" * n + " }",
    "for": lambda n: "fn f() { " + "for a in b { " * n + "}" * n + " }",
    "for bodies": lambda n: "fn f() { " + "for a in b " * n + "c }",
    "match": lambda n: "fn f() { " + "match a { b => " * n + "1" + " }" * n + " }",
    "match subjects": lambda n: "fn f() { " + "match " * n + "a" + " { }" * n + " }",
    "arrow lambdas": lambda n: "let x = " + "a => " * n + "1",
    "parenthesised lambdas": lambda n: "let x = " + "(a) => " * n + "1",
    "fn lambdas": lambda n: "let x = " + "fn() " * n + "1",
    "fn lambdas with blocks": lambda n: "let x = " + "fn() { " * n + "}" * n,
    "calls": lambda n: "let x = " + "f(" * n + ")" * n,
    "named arguments": lambda n: "let x = " + "f(a=" * n + "1" + ")" * n,
    "methods": lambda n: "let x = " + "a.f(" * n + ")" * n,
    "indexes": lambda n: "let x = " + "a[" * n + "1" + "]" * n,
    "views": lambda n: "let x = " + "row() { " * n + "}" * n,
    "spawn": lambda n: "let x = " + "spawn(" * n + "1" + ")" * n,
    "side effects": lambda n: "fn f() { " + "side_effect { " * n + "}" * n + " }",
    "operators": lambda n: "let x = " + "1 |> a or b and c is d < e + f * (" * n + "1" + ")" * n,
    "generic types": lambda n: "let x: " + "L[" * n + "int" + "]" * n + " = 1",
    "function types": lambda n: "let x: " + "fn(" * n + ")" * n + " = 1",
    "function results": lambda n: "let x: " + "fn() to " * n + "int = 1",
    "patterns": lambda n: "fn f() { match a { " + "S(" * n + "x" + ")" * n + " => 1 } }",
    "tuple patterns": lambda n: "fn f() { let " + "(" * n + "x" + ")" * n + " = a }",
    "defaults": lambda n: "fn f(a = " + "fn(a = " * n + "1" + ") 1" * n + ") { }",
    "routes": lambda n: "routes { " + '"/" to A { ' * n + "}" * n + " }",
    "contracts": lambda n: "@require(" + "(" * n + "a" + ")" * n + ") fn f() { }",
    "with": lambda n: "let x = a" + " with { b: a" * n + " }" * n,
}
"""Construct -> a text in which it nests."""


@pytest.mark.parametrize("form", NESTED, ids=str)
def test_five_hundred_levels_are_accepted(form: str) -> None:
    """Each construct that nests may nest at least 500 deep, and a missing end is still found."""
    source = NESTED[form](_LEVELS)

    assert analyze(source).ok
    assert not analyze(source + " )").ok


@pytest.mark.parametrize("form", [form for form in NESTED if form != "else if"], ids=str)
def test_levels_beyond_the_limit_are_rejected(form: str) -> None:
    """Twenty thousand levels are refused with `nesting-limit`, whatever nests."""
    (error,) = analyze(NESTED[form](20_000)).errors[:1]

    assert error.code is Code.NESTING_LIMIT
    assert str(MAX_NESTING) in error.message


def test_long_texts_do_not_count_as_nested() -> None:
    n = 20_000

    assert analyze("fn f() { if a { }" + " else if a { }" * n + " }").ok
    assert analyze("let x = 1" + " + 1" * n).ok
    assert analyze("let x = a" + ".b" * n).ok
    assert analyze("let x = a" + "(1)" * n).ok
    assert analyze("let x = (" + "1, " * n + ")").ok


def test_a_deep_caller_changes_nothing() -> None:
    def from_depth(depth: int) -> bool:
        return from_depth(depth - 1) if depth else analyze(NESTED["if"](_LEVELS)).ok

    assert from_depth(700)


def test_threads_do_not_affect_one_another() -> None:
    """Deep and shallow texts in several threads at once get their verdicts, and the limit is restored."""
    before = sys.getrecursionlimit()
    sources = [NESTED[form](levels) for form in ("lists", "if", "views", "match") for levels in (5, 500, 1500)] * 8
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(analysis.ok for analysis in pool.map(analyze, sources))
    finally:
        sys.setswitchinterval(interval)

    assert sys.getrecursionlimit() == before


def test_the_limit_is_restored_later_if_a_caller_is_beyond_it() -> None:
    """Restoring it never raises: after a caller that went deep meanwhile, the next parse restores it."""
    stack = DeepStack(5000)
    before = sys.getrecursionlimit()

    def from_depth(depth: int) -> None:
        if depth:
            from_depth(depth - 1)
        else:
            with stack.parse():
                pass

    with stack.parse():
        stack.deepen()
        stack.deepen()
        stack._num_parses = 0  # noqa: SLF001 - as if the raising parse had ended on another thread
        from_depth(before + 100)
        assert sys.getrecursionlimit() == before + 5000
        stack._num_parses = 1  # noqa: SLF001 - likewise
    assert sys.getrecursionlimit() == before


@pytest.mark.threat("W8")
@pytest.mark.slow
@pytest.mark.parametrize("num_characters", [100_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
@every(
    "fragment",
    [
        *"({[}\0\né\ud800\"'\\@9a_!\r/",
        *('"\\', "@a", "-", "not ", "a.", "a(", "a?", "a b ", "if a {", "fn() ", "x => ", "Foo() { ", "@ai(", "| A "),
        *("'\\\n", "// "),
        *("fn f(\n", "@foo ", "& x ", "}\n", "routes {", "let x = 1;"),
    ],
    ids=repr,
)
def test_any_long_text_gets_a_verdict(fragment: str, num_characters: int) -> None:
    analysis = analyze(fragment * (num_characters // len(fragment)))

    assert analysis.ok == (not analysis.errors)


_FRAMES = (
    *("{}", "fn f() {{ {} }}", "fn f() {{ x({}) }}", "let x = [{}]", "let x = {}", "fn f({}) {{ }}", "type T {{ {} }}"),
    *("fn f() {{ if a {{ {} }} }}", "routes {{ {} }}", "component C() {{ view: column() {{ {} }} }}"),
)
_TOKENS = (
    *("a ", "B ", "1 ", '"s" ', ", ", ". ", ": ", "= ", "+ ", "not "),
    *("( ", ") ", "{ ", "} ", "\n", "@a ", "let ", "is "),
)


def _draw_shapes() -> list[tuple[str, str]]:
    draw = random.Random(4)  # noqa: S311 - shapes of tests
    drawn = [(draw.choice(_FRAMES), "".join(draw.choices(_TOKENS, k=draw.randint(2, 4)))) for _ in range(14)]
    return [(_FRAMES[1], "b "), (_FRAMES[2], "B "), *drawn]


def _analyze(source: str) -> None:
    analysis = analyze_uncached(source)
    if analysis.module is not None:
        semantic_diagnostics(analysis.module, source)


@pytest.mark.threat("W8")
@every("shape", _draw_shapes())
def test_time_is_linear_for_any_repeated_text(shape: tuple[str, str]) -> None:
    frame, tokens = shape
    assert_linear(_analyze, lambda size: frame.format(tokens * size), 40_000 if tokens == "b " else 2_000)


@pytest.mark.parametrize("data", [b"\xff" * 1_000_000, b"\0" * 1_000_000, b"let x = \xc3\x28", bytes(range(256))])
def test_any_bytes_get_a_verdict(data: bytes) -> None:
    analysis = analyze_bytes(data)

    assert analysis.ok == (not analysis.errors)


@pytest.mark.parametrize("mode", Mode)
def test_the_empty_text_is_accepted_in_every_mode(mode: Mode) -> None:
    assert analyze("", mode).ok
