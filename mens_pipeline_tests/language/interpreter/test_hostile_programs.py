"""Hostile programs run one after another in the same workers, and each ends as the rules say."""

from typing import Final

import pytest

from mens_pipeline.language.interpreter import Limits, ProgramReport, ProgramStatus, Sandbox
from mens_pipeline_tests.language.interpreter.verdicts import verdict

_LIMITS: Final = Limits(max_steps=100_000, test_seconds=1.0, program_seconds=20.0)
_OK: Final = "@test fn t() { assert(1 is 1) }"
_SLOW: Final = "[!-\U0010ffff]" * 800
_BOMB: Final = '"a".repeat(60) + "b"'

_BODIES: Final = {
    "for ever": ("loop { }", "error:StepLimit"),
    "counting": ("let mut n = 0 while n >= 0 { n += 1 }", "error:StepLimit"),
    "repeated text": ('let s = "ab".repeat(900000000)', "error:LimitExceeded"),
    "negative repeat": ('let s = "ab".repeat(-1) assert(s is "")', "error:TypeError"),
    "split to pieces": ('loop { let xs = "a,".repeat(400000).split(",") }', "error:StepLimit"),
    "long range": ("let xs = range(0, 4000000000)", "error:LimitExceeded"),
    "deep value": ("let mut x = [1] let mut k = 0 while k < 900 { x = [x] k += 1 } print(x)", "error:LimitExceeded"),
    "large numbers": ("let mut n = 3 loop { n = n * n }", "error:IntegerOverflow"),
    "smallest number": ("let n = -9223372036854775807 - 1 let m = n / -1", "error:IntegerOverflow"),
    "division by zero": ("let n = 1 / 0", "error:DivisionByZero"),
    "remainder of zero": ("let n = 1 % 0", "error:DivisionByZero"),
    "outside of a list": ("let xs = [1] let x = xs[9]", "error:IndexOutOfRange"),
    "long output": ('loop { print("x".repeat(10000)) }', "error:StepLimit"),
    "exponential search": (f'assert(std.regex.compile("(a+)+$").unwrap().matches({_BOMB}))', "error:Timeout"),
    "exponential search twice": (
        f'assert(std.regex.compile("(a|a)*$").unwrap().find_all({_BOMB}).len() is 0)',
        "error:Timeout",
    ),
    "slow pattern": (f'let re = std.regex.compile("{_SLOW}")', "error:Timeout"),
    "back-reference": ('assert(std.regex.compile("(a)\\\\1").is_err())', "pass"),
    "deep JSON": ('let v = json.parse("[".repeat(100000))', "pass"),
    "huge number in JSON": ('let v = json.parse("1" + "0".repeat(400000))', "pass"),
    "reading a file": ('let s = std.fs.read("/etc/passwd")', "unsupported:fs"),
    "writing a file": ('std.fs.write("/tmp/x", "y")', "unsupported:fs"),
    "removing a file": ('std.fs.remove("/tmp/x")', "unsupported:fs"),
    "asking the network": ('let s = std.http.get("http://169.254.169.254/")', "unsupported:net"),
    "a variable of the environment": ('let s = std.env.get("HOME")', "unsupported:env"),
    "starting a process": ('let s = std.process.run("sh", ["-c", "id"])', "unsupported:process"),
    "the clock": ("let t = std.time.now()", "unsupported:clock"),
    "names of Python": ("let x = __import__(1)", "error:UndefinedName"),
    "attributes of Python": ('let x = "".__class__', "error:TypeError"),
    "attributes of functions": ("let f = fn(x) x let g = f.__globals__", "error:TypeError"),
    "format of Python": ('assert("{0.__class__}".len() is 13)', "pass"),
    "NUL and escapes": ('print("\\u{0}\\u{1b}[2J") assert(true)', "pass"),
}


@pytest.mark.slow
@pytest.mark.threat("P2")
def test_hostile_programs_end_in_a_sandbox() -> None:
    sources = [f"@test fn t() {{ {body} }}" for body, _ in _BODIES.values()]
    with Sandbox(2, _LIMITS) as sandbox:
        details = [_describe(report) for report in sandbox.map(sources)]
        after = [sandbox.run(_OK).passed for _ in range(4)]
    expected = {name: wanted for name, (_, wanted) in _BODIES.items()}
    disagreements = {
        name: f"{found}, expected {expected[name]}"
        for name, found in zip(_BODIES, details, strict=True)
        if found != expected[name]
    }

    assert disagreements == {}
    assert after == [True] * 4


def _describe(report: ProgramReport) -> str:
    if report.status is not ProgramStatus.RAN:
        return f"{report.status}:{report.limit or [d.code for d in report.diagnostics]}"
    return verdict(report.tests[0])
