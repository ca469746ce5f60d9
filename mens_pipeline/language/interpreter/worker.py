"""The other side of the sandbox: a process that runs programs one after the other and can reach nothing.

It answers a line of JSON by a line of JSON, and `null` by what is kept from it. Nothing but the interpreter runs here,
which has no way out; limits, system call filter and audit hook are there for the day on which that is not true.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from mens_pipeline.language.interpreter.containment import contain
from mens_pipeline.language.interpreter.hidden_tests import run_with_tests
from mens_pipeline.language.interpreter.results import ProgramReport
from mens_pipeline.language.interpreter.running import run_tests
from mens_pipeline.language.interpreter.wire import Request, report_record, request_of

_FORBIDDEN: Final = (
    *("open", "socket.", "subprocess.", "os.", "pty.", "shutil.", "ctypes.", "urllib.", "ftplib.", "http."),
    *("import", "exec", "compile", "mmap.", "tempfile.", "glob.", "syslog.", "webbrowser.", "sqlite3."),
)
"""Events of Python's audit system that no program has a reason to cause."""


def answer(request: Request) -> ProgramReport:
    """Run what is asked for."""
    source, limits, seed, features = request.source, request.limits, request.seed, request.features
    if request.tests is not None:
        return run_with_tests(source, request.tests, limits, seed, features=features)
    return run_tests(source, limits, seed, features=features, mode=request.mode)


def serve(requests: BinaryIO, answers: BinaryIO, respond: Callable[[Any], Any], kept: object) -> None:
    """Answer requests until there are no more.

    `respond` gives the answer to a request, both in JSON types; `kept` is the answer to the request `null`.
    """
    for line in requests:
        request = json.loads(line)
        answer = kept if request is None else respond(request)
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def confine(
    memory_bytes: int,
    set_limit: Callable[[int, tuple[int, int]], None] = resource.setrlimit,
    add_hook: Callable[[Callable[[str, Any], None]], None] = sys.addaudithook,
    contain_it: Callable[[], dict[str, str]] = contain,
) -> dict[str, str]:
    """Give up memory beyond a bound, new files, sockets and processes, for good.

    Of the address space, `memory_bytes` remain; the others set a limit of this process, have the events of Python's
    audit system judged, and have the kernel keep from it what it never needs.

    Returns:
        What is kept from this process -> why it is not kept here; empty where it is.
    """
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
    """Refuse an event of Python's audit system that reaches outside.

    Raises:
        PermissionError: It does.
    """
    if event.startswith(_FORBIDDEN):
        raise PermissionError(f"the sandbox refuses {event}")


def main(memory_bytes: int, requests: BinaryIO, answers: BinaryIO, give_up: Callable[[int], object] = confine) -> None:
    """Warm up, give everything up, answer.

    Of the address space, `memory_bytes` remain; `give_up` confines this process and says what is kept from it.
    """
    run_tests("fn f(n: int) to int { n + 1 }\n@test fn t() { assert(f(1) is 2, str(1.5dec)) }")
    kept = give_up(memory_bytes)
    serve(requests, answers, lambda record: report_record(answer(request_of(record))), kept)
