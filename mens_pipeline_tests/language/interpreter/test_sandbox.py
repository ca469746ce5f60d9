"""Programs run in separate processes that are reused, bounded and replaced."""

import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language.interpreter import (
    Features,
    LimitKind,
    Limits,
    Outcome,
    ProgramStatus,
    Sandbox,
    report_record,
    run_tests,
    run_with_tests,
)
from mens_pipeline.language.interpreter.sandbox import WorkerProcess, read_report
from mens_pipeline.language.interpreter.worker import confine, main, refuse
from mens_pipeline_tests.every import every_row

_LIMITS = Limits(max_steps=50_000, test_seconds=1.0, program_seconds=10.0)
_OK = "@test fn t() { assert(1 is 1) }"
_ASLEEP = (sys.executable, "-c", "import time; time.sleep(60)")
_DEAF = (sys.executable, "-c", "pass")
_SAMPLES = [
    _OK,
    "@test fn t() { assert(1 is 2) }",
    "@test fn t() { let x = 1 / 0 }",
    "@test fn t() { loop { } }",
    '@test fn t() { print("é") let x = std.fs.read("/etc/passwd") }',
    "fn f() { }",
    "fn f( {",
]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """Two workers for all tests of this file."""
    with Sandbox(2, _LIMITS) as pool:
        yield pool


def test_a_report_survives_the_wire() -> None:
    for source in _SAMPLES:
        report = run_tests(source, _LIMITS)

        assert read_report(json.loads(json.dumps(report_record(report)))) == report


def test_a_worker_gives_the_reports_of_the_interpreter(sandbox: Sandbox) -> None:
    assert list(sandbox.map(_SAMPLES)) == [run_tests(source, _LIMITS) for source in _SAMPLES]


def test_hidden_tests_run_in_the_sandbox(sandbox: Sandbox) -> None:
    pairs = [(f"fn f() to int {{ return {k} }}", "@test fn t() { assert(f() is 1) }") for k in range(3)]

    assert sandbox.run_with_tests(*pairs[1]).passed
    assert list(sandbox.map_with_tests(pairs)) == [run_with_tests(*pair, _LIMITS) for pair in pairs]


def test_broken_hidden_tests_are_refused_before_anything_runs(sandbox: Sandbox) -> None:
    with pytest.raises(ConfigurationError, match="Mend the task"):
        sandbox.run_with_tests(_OK, "@test fn t( {")


@pytest.mark.threat("P2")
@every_row(
    ('assert(std.regex.compile("(a+)+$").unwrap().matches("a".repeat(40) + "b"))', LimitKind.TIME),
    ('let mut s = "a" loop { s = s + s }', LimitKind.SIZE),
    ("let f = fn(g) g(g) let x = f(f)", LimitKind.DEPTH),
    ("loop { }", LimitKind.STEPS),
)
def test_hostile_programs_leave_the_worker_alive(body: str, limit: LimitKind, sandbox: Sandbox) -> None:
    report = sandbox.run(f"@test fn a() {{ {body} }}\n@test fn b() {{ assert(true) }}")

    assert [result.reason for result in report.tests] == [limit, None]
    assert sandbox.run(_OK).passed


@pytest.mark.parametrize(
    "condition",
    [
        'float("\u0131nf") is 0.0',
        'std.regex.compile("(?a)(?u)x").is_err()',
        'std.regex.compile("\\\\N{DIGIT ONE}").is_err()',
        'std.regex.compile("[\\\\N{DIGIT ONE}]").is_err()',
    ],
)
def test_texts_with_another_meaning_in_python_cause_no_error(sandbox: Sandbox, condition: str) -> None:
    report = sandbox.run(f"@test fn a() {{ assert({condition}) }}\n@test fn b() {{ assert(true) }}")

    assert [(result.outcome, result.message) for result in report.tests] == [(Outcome.PASSED, "")] * 2


@pytest.mark.threat("P2")
def test_memory_is_bounded_by_the_system() -> None:
    hungry = "@test fn t() { let mut xs = [1] loop { xs = xs.push(range(0, 900000)) } }"
    limits = Limits(max_steps=10**9, max_allocation=10**10, memory_bytes=200 * 1024 * 1024)
    with Sandbox(1, limits) as pool:
        reports = [pool.run(hungry), pool.run(_OK)]

    assert (reports[0].tests[0].reason, reports[0].tests[0].message) == (LimitKind.SIZE, "the memory is used up")
    assert reports[1].passed


def test_a_worker_that_does_not_reply_is_killed() -> None:
    with Sandbox(1, Limits(program_seconds=-1.9), command=_ASLEEP) as pool:
        report = pool.run(_OK)

    assert (report.status, report.limit, report.error_class) == (ProgramStatus.STOPPED, LimitKind.TIME, "timeout")
    assert read_report(report_record(report)) == report


def test_a_worker_that_does_not_read_is_killed() -> None:
    with Sandbox(1, Limits(program_seconds=-1.9), command=_ASLEEP) as pool:
        assert pool.run("#" * 1_000_000).limit is LimitKind.TIME


def test_a_worker_that_dies_is_replaced() -> None:
    with Sandbox(1, _LIMITS, command=_DEAF) as pool:
        reports = [pool.run(_OK), pool.run(_OK)]

    assert [(report.status, report.limit) for report in reports] == [(ProgramStatus.STOPPED, LimitKind.SIZE)] * 2
    assert "the process died" in reports[0].message


def test_a_worker_may_be_ended_twice() -> None:
    worker = WorkerProcess(_ASLEEP, _LIMITS)
    worker.end()
    worker.end()


def test_a_worker_serves_requests_in_this_process() -> None:
    bounds = {"seed": 3, "mode": "source", "limits": asdict(Limits()), "features": asdict(Features(database=True))}
    request = {"source": _OK, "tests": None, **bounds}
    hidden = {"source": "fn f() to int { return 1 }", "tests": "@test fn t() { assert(f() is 1) }", **bounds}
    half = {**request, "source": r'@test fn t() { panic(json.parse("\"\\ud800\"")) }'}
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in (request, hidden, half))
    completions = io.BytesIO()
    given_up: list[int] = []

    def give_up(memory: int) -> dict[str, str]:
        given_up.append(memory)
        return {"files": ""}

    main(5, io.BytesIO(b"null\n" + lines), completions, give_up)
    kept, *reports = completions.getvalue().splitlines()

    assert given_up == [5]
    assert json.loads(kept) == {"files": ""}
    assert [read_report(json.loads(line)).passed for line in reports] == [True, True, False]
    assert "\\ud800" in read_report(json.loads(reports[2])).tests[0].message


def test_a_worker_gives_up_its_rights() -> None:
    limits: list[tuple[int, tuple[int, int]]] = []
    hooks: list[object] = []

    def confine_with(reason: str) -> dict[str, str]:
        return confine(
            7, lambda which, bounds: limits.append((which, bounds)), hooks.append, lambda: {"system calls": reason}
        )

    assert confine_with("") == {"memory": "", "files": "", "processes": "", "system calls": ""}
    assert limits[0] == (resource.RLIMIT_AS, (7, 7))
    nothing = {resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC}
    assert {which for which, bounds in limits if bounds == (0, 0)} == nothing
    assert hooks == [refuse]
    by_root = "root is not bound by RLIMIT_NPROC" if os.geteuid() == 0 else ""
    assert confine_with("no seccomp") == {"memory": "", "files": "", "processes": by_root, "system calls": "no seccomp"}


@pytest.mark.threat("P1")
@pytest.mark.parametrize("event", ["socket.connect", "open", "os.fork", "subprocess.Popen", "import", "exec"])
def test_access_to_the_outside_is_refused(event: str) -> None:
    with pytest.raises(PermissionError, match=f"the sandbox refuses {event}"):
        refuse(event, ())


def test_inner_events_are_not_refused() -> None:
    refuse("object.__getattr__", ())


_BREAKOUT = """
import resource, sys
from mens_pipeline.language.interpreter.worker import confine
import socket, subprocess
confine(int(sys.argv[1]))
def attempt(action):
    try:
        action()
    except (OSError, MemoryError, ValueError) as error:
        return type(error).__name__
    return "done"
print(attempt(socket.socket), attempt(lambda: open("/etc/hostname")), attempt(lambda: subprocess.run(["true"])),
      attempt(lambda: bytearray(1 << 30)), attempt(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))))
"""


@pytest.mark.threat("P1")
def test_a_confined_process_has_no_access() -> None:
    command = [sys.executable, "-c", _BREAKOUT, str(512 * 1024 * 1024)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    refused = "PermissionError"
    assert done.stdout.split() == [refused, refused, refused, "MemoryError", "ValueError"]
