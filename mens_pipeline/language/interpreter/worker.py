"""The worker process of the sandbox, which runs programs one after the other without access to the outside.

It replies to each line of JSON with a line of JSON, and to `null` with its protections. Only the interpreter runs here,
and it gives programs no access; limits, system call filter and audit hook are a second line of defence.

Covered on Linux on x86_64 and aarch64, even for root: no files, sockets, processes, threads or other programs; no
signals to other processes and no access to them; no executable memory; no raised limits. Only the system calls in
`_ALLOWED` work: others fail with `EPERM`, those of another architecture kill the process. It gains no privileges from
set-user-ID programs, and dies with its parent. Rlimits bound memory, files and processes (`confine`), the parent bounds
CPU time (`sandbox`). Without seccomp, only the rlimits and the audit hook remain.

Not covered: bugs of the kernel in the allowed calls; its own memory, which holds earlier requests and Python; its
standard output and error, so that replies may be forged and a terminal may show anything; timing attacks (Spectre).
`contain` reports which protections hold.
"""

import ctypes
import errno
import json
import os
import platform
import re
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from mens_pipeline.language.interpreter.results import Features, Limits
from mens_pipeline.language.interpreter.running import run_tests, run_with_tests
from mens_pipeline.language.interpreter.sandbox import report_record
from mens_pipeline.language.parser.modules import Mode

Prctl = Callable[[int, int, int], None]
"""Calls prctl(2) with an option and two arguments; raises OSError on failure."""

_SET_PARENT_DEATH_SIGNAL: Final = 1
_SET_SECCOMP: Final = 22
_SET_NO_NEW_PRIVS: Final = 38
_MODE_FILTER: Final = 2
_PARENT_GONE: Final = 75

_ALLOWED: Final = {
    # name: number on x86_64, on aarch64
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "setitimer": (38, 103),
    "getpid": (39, 172),
    "exit": (60, 93),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
}
_WITHOUT_EXECUTION: Final = {"mmap": (9, 222), "mprotect": (10, 226)}
"""Allowed for memory that is not executable."""

_MACHINES: Final = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}
"""Machine -> the column above, and its `AUDIT_ARCH_*` number."""

# Classic BPF: constants of linux/filter.h and linux/seccomp.h.
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_AT_NUMBER, _AT_MACHINE, _AT_PROTECTION = 0, 4, 32
_ALLOW, _REFUSE, _KILL = 0x7FFF_0000, 0x0005_0000 | errno.EPERM, 0x8000_0000
_EXECUTABLE: Final = 4


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def contain(*, prctl: Prctl | None = None, machine: str | None = None) -> dict[str, str]:
    """Give up access that programs never need; `prctl` and `machine` (as in `uname`) default to this system's.

    Return each protection with the reason why it does not hold here, empty if it holds.
    """
    call = prctl or own_prctl()
    program = system_call_filter(machine or platform.machine())
    steps: dict[str, Callable[[], None]] = {
        "outliving the parent": lambda: call(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0),
        "new privileges": lambda: call(_SET_NO_NEW_PRIVS, 1, 0),
        "system calls": lambda: _install(program, call),
    }
    return {what: _reason(step) for what, step in steps.items()}


def die_with_parent(parent: int, *, prctl: Prctl | None = None) -> None:
    """Have the kernel, if it can, kill this process when its parent thread ends; exit if the parent is gone already."""
    call = prctl or own_prctl()
    reason = _reason(lambda: call(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0))
    if not reason and os.getppid() != parent:
        sys.exit(_PARENT_GONE)


def system_call_filter(machine: str) -> bytes | None:
    """Return the filter of system calls as classic BPF, eight bytes per instruction; None for an unknown machine."""
    if machine not in _MACHINES:
        return None
    column, name = _MACHINES[machine]
    allowed = [numbers[column] for numbers in _ALLOWED.values()]
    checked = [numbers[column] for numbers in _WITHOUT_EXECUTION.values()]
    # Jumps count the instructions they skip; the end is: refuse, load the protection, jump, refuse, allow.
    num_tests = len(allowed) + len(checked)
    tests = [
        (_JUMP_IF_EQUAL, num_tests - 1 - place + (4 if number in allowed else 1), 0, number)
        for place, number in enumerate(allowed + checked)
    ]
    instructions = [
        (_LOAD, 0, 0, _AT_MACHINE),
        (_JUMP_IF_EQUAL, 1, 0, name),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _AT_NUMBER),
        *tests,
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _AT_PROTECTION),
        (_JUMP_IF_SET, 0, 1, _EXECUTABLE),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def own_prctl(libc: object | None = None) -> Prctl:
    """Return the prctl(2) of this system, or a function that raises OSError."""
    function = getattr(libc or ctypes.CDLL(None, use_errno=True), "prctl", None)

    def call(option: int, first: int, second: int) -> None:
        if function is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        unsigned = ctypes.c_ulong
        if function(option, unsigned(first), unsigned(second), unsigned(0), unsigned(0)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return call


def _install(program: bytes | None, call: Prctl) -> None:
    if program is None:
        raise OSError(errno.ENOSYS, f"no numbers of system calls are known for {platform.machine()}")
    document = _Filter(len(program) // 8, program)
    call(_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(document))


def _reason(step: Callable[[], None]) -> str:
    try:
        step()
    except OSError as error:
        return error.strerror or str(error)
    return ""


_FORBIDDEN: Final = (
    *("open", "socket.", "subprocess.", "os.", "pty.", "shutil.", "ctypes.", "urllib.", "ftplib.", "http."),
    *("import", "exec", "compile", "mmap.", "tempfile.", "glob.", "syslog.", "webbrowser.", "sqlite3."),
)
"""Prefixes of Python audit events that no Vox program causes."""


def run_request(source: str, tests: str | None, seed: int, mode: str, **bounds: dict[str, Any]) -> dict[str, Any]:
    """Run hidden `tests`, or the program's own tests if None; `bounds` are limits and features."""
    limits, features = Limits(**bounds["limits"]), Features(**bounds["features"])
    if tests is not None:
        return report_record(run_with_tests(source, tests, limits, seed, features=features))
    return report_record(run_tests(source, limits, seed, features=features, mode=Mode(mode)))


_HALF: Final = re.compile("[\ud800-\udfff]")
"""A lone surrogate, which a program can get from JSON, but which UTF-8 cannot encode."""


def serve(requests: BinaryIO, replies: BinaryIO, respond: Callable[[Any], Any], kept: object) -> None:
    """Reply to each request: `kept` to `null`, else the result of `respond`, as JSON with lone surrogates escaped."""
    for line in requests:
        request = json.loads(line)
        reply = kept if request is None else respond(request)
        text = json.dumps(reply, ensure_ascii=False)
        replies.write(_HALF.sub(lambda half: rf"\\u{ord(half[0]):x}", text).encode() + b"\n")
        replies.flush()


def confine(
    memory_bytes: int,
    set_limit: Callable[[int, tuple[int, int]], None] = resource.setrlimit,
    add_hook: Callable[[Callable[[str, Any], None]], None] = sys.addaudithook,
    contain_it: Callable[[], dict[str, str]] = contain,
) -> dict[str, str]:
    """Give up address space beyond `memory_bytes`, and new files, sockets and processes; return as `contain` does."""
    set_limit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for nothing in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        set_limit(nothing, (0, 0))
    processes = "root is not bound by RLIMIT_NPROC" if os.geteuid() == 0 else ""
    kept = {"memory": "", "files": "", "processes": processes, **contain_it()}
    if not kept["system calls"]:
        kept["processes"] = ""
    add_hook(refuse)
    return kept


def refuse(event: str, _arguments: Any) -> None:
    """Raise a `PermissionError` for an audit event that reaches outside."""
    if event.startswith(_FORBIDDEN):
        raise PermissionError(f"the sandbox refuses {event}")


def main(memory_bytes: int, requests: BinaryIO, replies: BinaryIO, give_up: Callable[[int], object] = confine) -> None:
    """Warm up, confine this process with `give_up`, and reply to requests."""
    run_tests("fn f(n: int) to int { n + 1 }\n@test fn t() { assert(f(1) is 2, str(1.5dec)) }")
    kept = give_up(memory_bytes)
    serve(requests, replies, lambda request: run_request(**request), kept)
