"""The kernel restricts a worker even if the interpreter has a hole, simulated by native code."""

import errno
import json
import os
import platform
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mens_pipeline.language.interpreter import Limits, Sandbox
from mens_pipeline.language.interpreter.sandbox import WORKER_COMMAND, WorkerProcess
from mens_pipeline.language.interpreter.worker import contain, die_with_parent, own_prctl, system_call_filter
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.waits import wait_until

_LIMITS = Limits(max_steps=50_000, test_seconds=1.0, program_seconds=10.0)
_OK = "@test fn t() { assert(1 is 1) }"

_HOLE = """
import ctypes, json, os, signal, sys
from mens_pipeline.language.interpreter.worker import confine
folder = sys.argv[2].encode()
libc = ctypes.CDLL(None)
libc.__errno_location.restype = ctypes.POINTER(ctypes.c_int)
code = libc.__errno_location().contents
file, other, new, program = folder + b"/file", folder + b"/sub", folder + b"/new", b"/bin/true"
parent, argv = os.getppid(), (ctypes.c_char_p * 2)(program, None)
attempts = {
    "open": (libc.open, file, 0),
    "create": (libc.open, new, os.O_CREAT | os.O_WRONLY, 0o600),
    "unlink": (libc.unlink, file),
    "rmdir": (libc.rmdir, other),
    "rename": (libc.rename, file, new),
    "mkdir": (libc.mkdir, new, 0o700),
    "chmod": (libc.chmod, file, 0o777),
    "symlink": (libc.symlink, file, new),
    "link": (libc.link, file, new),
    "truncate": (libc.truncate, file, 0),
    "mknod": (libc.mkfifo, new, 0o600),
    "chdir": (libc.chdir, folder),
    "chroot": (libc.chroot, folder),
    "mount": (libc.mount, b"none", folder, b"tmpfs", 0, None),
    "fork": (libc.fork,),
    "execve": (libc.execv, program, argv),
    "socket": (libc.socket, 2, 1, 0),
    "memfd": (libc.memfd_create, b"new", 0),
    "pipe": (libc.pipe, (ctypes.c_int * 2)()),
    "kill the parent": (libc.kill, parent, signal.SIGUSR1),
    "ptrace the parent": (libc.ptrace, 16, parent, None, None),
    "raise a limit": (libc.setrlimit, 7, (ctypes.c_ulong * 2)(99, 99)),
    "become another": (libc.setuid, 0),
    "executable memory": (libc.mprotect, ctypes.addressof(ctypes.c_char.from_buffer(bytearray(1))) & ~4095, 4096, 7),
}
kept = confine(int(sys.argv[1]))
found = {}
for name, (function, *arguments) in attempts.items():
    value = function(*arguments)
    why = code.value
    if name == "fork" and value == 0:
        os._exit(0)
    found[name] = why if value == -1 else "done"
print(json.dumps([kept, found]))
"""
_RUNAWAY = """
import threading, time
from mens_pipeline.language.interpreter import Limits, Sandbox
endless = '@test fn t() { assert(std.regex.compile("(a+)+$").unwrap().matches("a".repeat(60) + "b")) }'
with Sandbox(1, Limits(test_seconds=60.0, program_seconds=60.0)) as sandbox:
    thread = threading.Thread(target=lambda: sandbox.run(endless))
    thread.start()
    time.sleep(1.5)
    print("started", flush=True)
    thread.join()
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="seccomp and signals upon the death of a parent are Linux's")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """Two workers."""
    with Sandbox(2, _LIMITS) as pool:
        yield pool


@pytest.mark.threat("P3")
@linux
def test_a_hole_in_the_interpreter_gives_no_access(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("whole")
    (tmp_path / "sub").mkdir()
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        command = [sys.executable, "-c", _HOLE, str(512 * 1024 * 1024), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert done.returncode == 0, done.stderr
    kept, found = json.loads(done.stdout)

    assert {what: why for what, why in kept.items() if why} == {}
    assert {name: code for name, code in found.items() if code != errno.EPERM} == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "sub"]
    assert (tmp_path / "file").read_text() == "whole"


@linux
def test_workers_report_their_restrictions(sandbox: Sandbox) -> None:
    kept = sandbox.kept_out()

    assert list(kept) == ["memory", "files", "processes", "outliving the parent", "new privileges", "system calls"]
    assert set(kept.values()) == {""}
    assert sandbox.run(_OK).passed


def test_a_worker_that_dies_has_no_restrictions() -> None:
    with Sandbox(1, _LIMITS, command=(sys.executable, "-c", "pass")) as pool:
        assert pool.kept_out() == {"anything": "the process died while it ran the program"}


def test_missing_features_of_a_system_are_reported() -> None:
    options: list[int] = []

    def prctl(option: int, _first: int, _second: int) -> None:
        options.append(option)
        if option == 22:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    assert contain(prctl=prctl) == {
        "outliving the parent": "",
        "new privileges": "",
        "system calls": "Invalid argument",
    }
    assert options == [1, 38, 22]
    assert contain(prctl=prctl, machine="riscv64")["system calls"].startswith("no numbers of system calls are known")
    missing = own_prctl(object())
    assert set(contain(prctl=missing, machine="x86_64").values()) == {os.strerror(errno.ENOSYS)}
    die_with_parent(0, prctl=missing)


@linux
def test_a_worker_exits_without_its_parent() -> None:
    before = os.getppid()
    die_with_parent(before, prctl=lambda _option, _first, _second: None)
    with pytest.raises(SystemExit) as ended:
        die_with_parent(before + 1, prctl=lambda _option, _first, _second: None)
    assert ended.value.code == 75
    with pytest.raises(OSError, match="Invalid argument"):
        own_prctl()(1, 999, 0)
    own_prctl()(8, 0, 0)  # PR_SET_KEEPCAPS as it is


def _verdict(program: bytes, machine: int, number: int, protection: int = 0) -> int:
    data = struct.pack("=iIQ6Q", number, machine, 0, 0, 0, protection, 0, 0, 0)
    place, value = 0, 0
    while True:
        code, if_true, if_false, operand = struct.unpack_from("=HBBI", program, 8 * place)
        place += 1
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        else:
            is_true = value == operand if code == 0x15 else bool(value & operand)
            place += if_true if is_true else if_false


@every_row(
    ("x86_64", 0xC000003E, [0, 1, 13, 202, 228, 231, 318], [2, 41, 56, 57, 59, 62, 87, 101, 257, 302, 435], [9, 10]),
    ("aarch64", 0xC00000B7, [63, 64, 134, 98, 113, 94, 278], [56, 198, 220, 221, 129, 35, 117, 261, 435], [222, 226]),
)
def test_the_filter_of_each_machine_refuses_system_calls(
    machine: str, name: int, allowed: list[int], refused: list[int], memory: list[int]
) -> None:
    program = system_call_filter(machine)
    assert program is not None

    assert {_verdict(program, name, number) for number in allowed} == {0x7FFF0000}
    assert {_verdict(program, name, number) for number in refused} == {0x00050000 | errno.EPERM}
    assert {_verdict(program, name, number, 3) for number in memory} == {0x7FFF0000}
    assert {_verdict(program, name, number, 7) for number in memory} == {0x00050000 | errno.EPERM}
    assert {_verdict(program, 0x40000003, number) for number in allowed} == {0x80000000}
    assert system_call_filter("vax") is None


def test_this_machine_has_a_filter() -> None:
    assert system_call_filter(platform.machine()) is not None


def _find_children(pid: int) -> list[int]:
    command = ["ps", "-o", "pid=,comm=", "--ppid", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = (line.split() for line in found.stdout.splitlines())
    return [int(number) for number, name in rows if name != "ps"]


def _is_running(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


@pytest.mark.threat("P4")
@linux
def test_a_worker_exits_with_its_parent() -> None:
    """By SIGKILL, in the middle of a search that takes minutes."""
    with subprocess.Popen([sys.executable, "-c", _RUNAWAY], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        (worker,) = _find_children(parent.pid)
        parent.kill()

    wait_until(lambda: not _is_running(worker), 60)


def test_a_worker_outlives_the_thread_that_started_it() -> None:
    with ThreadPoolExecutor(1) as threads:
        worker = threads.submit(WorkerProcess, WORKER_COMMAND, _LIMITS).result()
    time.sleep(0.5)
    kept = worker.exchange(None, 10.0)
    worker.end()

    assert "memory" in kept


def _no_limit(*_arguments: object) -> None:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@linux
@pytest.mark.parametrize("cannot", [None, _no_limit, "can"])
def test_the_time_of_a_worker_is_bounded_if_the_system_can(monkeypatch: pytest.MonkeyPatch, cannot: object) -> None:
    """By the kernel, in case the parent is stopped; programs run without that limit too."""
    if cannot != "can":
        monkeypatch.setattr(f"{Sandbox.__module__}._SET_LIMIT_OF", cannot)
    others = set(_find_children(os.getpid()))
    with Sandbox(1, _LIMITS) as pool:
        reports = [pool.run(_OK), pool.run(_OK)]
        (worker,) = set(_find_children(os.getpid())) - others
        soft, _ = resource.prlimit(worker, resource.RLIMIT_CPU)

    assert all(report.passed for report in reports)
    assert (0 < soft < 20) == (cannot == "can")
