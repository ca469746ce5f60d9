"""Hostile programs end in a named result, in this process and in time."""

import os
import signal
import subprocess
import sys
import time
from threading import Thread

import pytest

from mens_pipeline.language.interpreter import LimitKind, Limits, Outcome, ProgramReport, ProgramStatus, run_tests
from mens_pipeline.language.interpreter.machine import Machine, time_limit
from mens_pipeline.language.interpreter.results import VoxError
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.interpreter.verdicts import only_result, result_of_body, verdict

_HUGE = 2**62
_SLOW = "[!-\U0010ffff]" * 500
_SMALL = Limits(max_steps=50_000, test_seconds=2.0)
_DEEP = "let mut x = [1] let mut k = 0 while k < 200 { x = [x] k += 1 }"
_WIDE = "let mut x = [1] let mut k = 0 while k < 60 { x = [x, x] k += 1 }"

_BODIES = {
    "endless loop": ("loop { }", LimitKind.STEPS),
    "endless while with continue": ("while true { continue }", LimitKind.STEPS),
    "doubling string": ('let mut s = "ab" loop { s = s + s }', LimitKind.SIZE),
    "repeat": ('let s = "ab".repeat(600000)', LimitKind.SIZE),
    "replace": ('let s = "a".repeat(2000).replace("a", "b".repeat(2000))', LimitKind.SIZE),
    "join": ('let s = [1, 2, 3].map(x => "a".repeat(300000)).join("b".repeat(300000))', LimitKind.SIZE),
    "range": ("let xs = range(0, 2000000)", LimitKind.SIZE),
    "pushing for ever": ("let mut xs = [1] loop { xs = xs.push(xs) }", LimitKind.SIZE),
    "much of everything": ('loop { let s = "a".repeat(900000) }', LimitKind.SIZE),
    "deep value": (f"{_DEEP} print(x)", LimitKind.SIZE),
    "deep comparison": (f"{_DEEP} assert(x is x)", LimitKind.SIZE),
    "wide comparison": (f"{_WIDE} assert(x is x)", LimitKind.STEPS),
    "wide text": (f"{_WIDE} print(x)", LimitKind.STEPS),
    "wide json": (f"{_WIDE} let s = json.stringify(x)", LimitKind.STEPS),
    "long strings compared": (
        'let a = "a".repeat(900000) let b = "a".repeat(900000) loop { assert(a is b) }',
        LimitKind.STEPS,
    ),
    "self-made recursion": ("let f = fn(g) g(g) let x = f(f)", LimitKind.DEPTH),
    "recursion through map": ("let f = fn(g) [g].map(g) let x = f(f)", LimitKind.DEPTH),
    "regex bomb": ('assert(std.regex.compile("(a+)+$").unwrap().matches("a".repeat(40) + "b"))', LimitKind.TIME),
    "slow pattern": (f'let re = std.regex.compile("{_SLOW}")', LimitKind.TIME),
}


@pytest.mark.threat("P2")
@pytest.mark.parametrize(("body", "limit"), _BODIES.values(), ids=_BODIES)
def test_hostile_body_runs_into_its_limit(body: str, limit: LimitKind) -> None:
    limits = Limits(max_steps=200_000, test_seconds=0.3 if limit is LimitKind.TIME else 60.0)
    result = result_of_body(body, limits=limits)

    assert (result.outcome, result.reason, result.error_class) == (Outcome.LIMIT, limit, "timeout")


@pytest.mark.parametrize("prefix", ["", "1 + ", "-" * 150 + " "], ids=["plain", "sum", "deep"])
def test_deep_recursion_is_a_limit(prefix: str) -> None:
    source = f"fn f(n: int) to int {{ return {prefix}f(n + 1) }}\n@test fn t() {{ assert(f(1) is 0) }}"

    assert only_result(source).reason is LimitKind.DEPTH


def test_a_long_expression_is_evaluated() -> None:
    """A chain of thousands of operators is deep in the tree, but no recursion of the program."""
    assert verdict(result_of_body(f"assert(1{' + 1' * 2000} is 2001)")) == "pass"


def test_an_extreme_expression_is_a_limit() -> None:
    assert result_of_body(f"assert(1{' + 1' * 40000} is 40001)").reason is LimitKind.DEPTH


def test_missing_memory_is_a_limit() -> None:
    limits = Limits(max_size=_HUGE, max_allocation=_HUGE, max_steps=_HUGE)
    result = result_of_body('let s = "a".repeat(4611686018427380000)', limits=limits)

    assert (result.reason, result.message) == (LimitKind.SIZE, "the memory is used up")


def test_output_is_cut() -> None:
    result = result_of_body('for x in range(100) { print("0123456789") } assert(true)', limits=Limits(max_output=25))

    assert result.output == "0123456789\n0123456789\n012"
    assert result.notes == ("output cut at 25 characters",)


def test_tests_are_independent() -> None:
    report = run_tests(
        "@test fn a() { print(1) assert(false) }\n@test fn b() { loop { } }\n@test fn c() { assert(true) }", _SMALL
    )
    first, second, third = report.tests

    assert [first.outcome, second.outcome, third.outcome] == [Outcome.FAILED, Outcome.LIMIT, Outcome.PASSED]
    assert (first.output, third.output, third.num_steps) == ("1\n", "", 3)
    assert (report.num_passed, report.passed, report.error_class) == (1, False, "wrong_answer")


def test_time_of_a_program_is_shared() -> None:
    report = run_tests(
        "@test fn a() { loop { } }\n@test fn b() { assert(true) }", Limits(max_steps=_HUGE, program_seconds=0.1)
    )

    assert [result.reason for result in report.tests] == [LimitKind.TIME, LimitKind.TIME]
    assert "more than 0.1 s before this test" in report.tests[1].message


def test_the_signal_of_the_limit_leaves_no_steps() -> None:
    """A timer that fires while coverage itself runs leaves its handler uncounted; this signal comes at a known line."""
    machine = Machine(_SMALL)
    with time_limit(machine, 60.0):
        signal.raise_signal(signal.SIGPROF)
        with pytest.raises(VoxError, match="more than 60"):
            machine.charge(1)


@pytest.mark.slow
def test_a_busy_machine_changes_no_result() -> None:
    """Eight processes share a core with a program: it gets the time it needs."""
    limits = Limits(max_steps=_HUGE, test_seconds=2.0, program_seconds=2.0)
    source = "@test fn a() { let mut i = 0 while i < 300000 { i += 1 } }"
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        begun = time.monotonic()
        report = run_tests(source, limits)
        taken = time.monotonic() - begun
    finally:
        os.sched_setaffinity(0, own)
        for other in others:
            other.kill()
            other.wait()

    assert report.passed, report.tests
    assert taken > limits.test_seconds


def test_another_thread_counts_steps_only() -> None:
    reports: list[ProgramReport] = []
    source = "@test fn a() { loop { } }\n@test fn b() { assert(true) }"
    thread = Thread(target=lambda: reports.append(run_tests(source, _SMALL)))
    thread.start()
    thread.join()

    assert [result.reason for result in reports[0].tests] == [LimitKind.STEPS, None]


def test_an_expired_time_ends_a_test_at_its_next_step() -> None:
    machine = Machine(Limits())
    machine.expire(1.5)
    with pytest.raises(VoxError, match=r"more than 1.5 s") as at_step:
        machine.charge(1)
    with machine.interruptible(), pytest.raises(VoxError, match=r"more than 1.5 s") as in_search:
        machine.expire(1.5)

    assert [error.value.reason for error in (at_step, in_search)] == [LimitKind.TIME] * 2


def test_too_many_tests_are_left_out() -> None:
    report = run_tests("".join(f"@test fn t{k}() {{ assert(true) }}\n" for k in range(5)), Limits(max_tests=3))

    assert (len(report.tests), report.notes) == (3, ("2 tests beyond the first 3 were left out",))


@every_row(
    ("fn f( {", ProgramStatus.REJECTED, ""),
    ("# é", ProgramStatus.NO_TESTS, "the program has no tests"),
    ("#" * 50, ProgramStatus.REJECTED, "the program has 50 bytes; the most is 40"),
)
def test_programs_that_do_not_run_have_a_status(source: str, status: ProgramStatus, message: str) -> None:
    report = run_tests(source, Limits(max_source=40))

    assert (report.status, report.message, report.tests, report.passed) == (status, message, (), False)
    assert report.error_class == ("parse" if status is ProgramStatus.REJECTED else None)


def test_a_value_that_is_too_large_is_not_shown() -> None:
    result = result_of_body(
        "let mut x = [1] let mut k = 0 while k < 150 { x = [x] k += 1 } let y = x?", limits=Limits(max_nesting=20)
    )

    assert result.message.endswith("found a value too large to show")
