"""Single functions called with values."""

import gc
import time
from collections.abc import Sequence

import pytest

from mens_pipeline.language.interpreter import ErrorKind, Features, LimitKind, Limits, Outcome, Refusal
from mens_pipeline.language.interpreter.results import VoxError
from mens_pipeline.language.interpreter.running import CallableProgram, CallResult
from mens_pipeline.language.interpreter.values import Native, Value, ok
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import parse

_PROGRAM = """let scale = 3
fn times(n: int) to int { return twice(n) * scale }
fn twice(n: int) to int { return n * 2 }
fn early(n: int) to Result[int] {
    let v = halved(n)?
    return Ok(v)
}
fn halved(n: int) to Result[int] { if n % 2 is 0 { return Ok(n / 2) } return Error("odd") }
@require(n > 0)
fn positive(n: int) to int { return n }
fn endless(n: int) to int { loop { } }
fn deep(n: int) to int { return deep(n) }
fn asked(n: int) to int { return std.time.now_ms() }
fn checked(n: int) to int { assert(n > 0) return n }
@ai(model="m") fn told(n: int) to str
type Shape = | Circle(r: int) | Dot
"""


def _program(source: str = _PROGRAM, limits: Limits | None = None) -> CallableProgram:
    return CallableProgram(parse(source), limits or Limits(), Features(check_contracts=True))


def _call(function: str, *arguments: Value) -> CallResult:
    program = _program(limits=Limits(max_steps=10_000))
    with program.running(5.0):
        return program.call(function, arguments)


def test_a_call_gives_the_value() -> None:
    result = _call("times", 4)

    assert (result.returned, result.value) == (True, 24)
    assert result.num_steps > 0


def test_an_error_that_a_function_returns_is_a_value() -> None:
    result = _call("early", 3)

    assert result.returned
    assert result.value.name == "Error"
    assert _call("early", 4).value.fields == ok(2).fields


@every_row(
    ("positive", (0,), ErrorKind.CONTRACT_VIOLATION),
    ("times", (2**62,), ErrorKind.INTEGER_OVERFLOW),
    ("times", (1, 2), ErrorKind.ARITY_ERROR),
    ("endless", (1,), LimitKind.STEPS),
    ("deep", (1,), LimitKind.DEPTH),
    ("asked", (1,), Refusal.CLOCK),
    ("told", (1,), Refusal.MODEL),
    ("missing", (), ErrorKind.NOT_CALLABLE),
    ("scale", (), ErrorKind.NOT_CALLABLE),
    ("checked", (0,), None),
)
def test_a_failed_call_has_a_reason(function: str, arguments: Sequence[Value], reason: object) -> None:
    result = _call(function, *arguments)

    assert not result.returned
    assert (result.value, result.reason) == (None, reason)
    assert result.message


def test_calls_do_not_affect_each_other() -> None:
    program = _program(limits=Limits(max_steps=100))
    with program.running(5.0):
        results = [program.call(name, (1,)) for name in ("endless", "times", "deep", "times")]

    assert [result.returned for result in results] == [False, True, False, True]


def test_a_call_may_have_fewer_steps() -> None:
    program = _program()
    with program.running(5.0):
        assert program.call("endless", (1,), 50).reason is LimitKind.STEPS
        assert program.call("times", (1,), 20).returned


def test_a_function_can_be_redefined() -> None:
    program = _program("fn f(n: int) to int { return g(n) + c }\nfn g(n: int) to int { return n }\nlet c = g(10)")
    module = parse("fn g(n: int) to int { return n * 2 }")
    with program.running(5.0):
        before = program.call("f", (1,)).value
        program.redefine(module.declarations[0])
        after = program.call("f", (1,)).value

    assert (before, after) == (11, 22)


def test_a_function_in_python_can_be_added() -> None:
    program = _program("fn f(n: int) to int { return outside(n) }")
    program.define(Native("outside", lambda _machine, n: n + 5, 1, 1))
    with program.running(5.0):
        assert program.call("f", (1,)).value == 6


def test_a_time_limit_ends_a_search() -> None:
    source = """fn search(s: str) to bool {
    match std.regex.compile("(a+)+b") {
        Ok(re) => return re.matches(s)
        Error(e) => return false
    }
}"""
    program = _program(source)
    began = time.monotonic()
    with program.running(0.2):
        results = [program.call("search", ("a" * 60,)), program.call("search", ("ab",))]

    assert [(result.outcome, result.reason) for result in results] == [(Outcome.LIMIT, LimitKind.TIME)] * 2
    assert "more than 0.2 s" in results[1].message
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("function", ["positive", "lost"])
def test_an_error_is_freed_after_its_call(function: str) -> None:
    """No cycle keeps it and its frames alive, so thousands of calls leave nothing to collect."""
    source = f"{_PROGRAM}fn lost(n: int) to int {{ return nowhere }}\n"
    gc.collect()
    gc.disable()
    try:
        program = _program(source)
        with program.running(5.0):
            assert program.call(function, (0,)).outcome is Outcome.ERROR
        kept = [one for one in gc.get_objects() if issubclass(type(one), VoxError)]
    finally:
        gc.enable()

    assert kept == []
