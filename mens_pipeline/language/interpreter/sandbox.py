"""Run untrusted programs in warm worker processes, which are replaced when they exceed a limit."""

import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from queue import LifoQueue
from time import clock_gettime, monotonic
from types import TracebackType
from typing import Any, Final, Self

import mens_pipeline
from mens_pipeline.language.diagnostics import Code, Diagnostic, Position, Severity
from mens_pipeline.language.interpreter.results import (
    CaseResult,
    ErrorKind,
    Features,
    LimitKind,
    Limits,
    Outcome,
    ProgramReport,
    ProgramStatus,
    Reason,
    Refusal,
    TextName,
)
from mens_pipeline.language.interpreter.running import DEFAULT_LIMITS, NO_FEATURES, hidden_module
from mens_pipeline.language.parser.modules import Mode


def report_record(report: ProgramReport) -> dict[str, Any]:
    """Return a report in JSON types; lines count from 1, columns from 0."""
    return {**asdict(report), "num_passed": report.num_passed, "error_class": report.error_class}


def read_report(record: dict[str, Any]) -> ProgramReport:
    return ProgramReport(
        ProgramStatus(record["status"]),
        tuple(_read_result(test) for test in record["tests"]),
        tuple(_read_diagnostic(diagnostic) for diagnostic in record["diagnostics"]),
        LimitKind(record["limit"]) if record["limit"] is not None else None,
        record["message"],
        tuple(record["notes"]),
    )


_REASONS: dict[Outcome, type[ErrorKind] | type[LimitKind] | type[Refusal]] = {
    Outcome.ERROR: ErrorKind,
    Outcome.LIMIT: LimitKind,
    Outcome.UNSUPPORTED: Refusal,
}


def _read_result(record: dict[str, Any]) -> CaseResult:
    outcome = Outcome(record["outcome"])
    kind = _REASONS.get(outcome)
    reason: Reason | None = kind(record["reason"]) if kind is not None else None
    fields = {**record, "outcome": outcome, "reason": reason, "text": TextName(record["text"])}
    return CaseResult(**{**fields, "notes": tuple(record["notes"])})


def _read_diagnostic(record: dict[str, Any]) -> Diagnostic:
    start, end = Position(**record["start"]), Position(**record["end"])
    return Diagnostic(
        Severity(record["severity"]), Code(record["code"]), record["message"], start, end, record["advice"]
    )


_GRACE_SECONDS: Final = 2.0  # extra time for parsing, starting and replying
_PATIENCE: Final = 10  # wall-clock seconds per CPU second: a busy machine gives a process only part of its time
_CHUNK: Final = 65_536

_START: Final = """import sys
from mens_pipeline.language.interpreter.worker import die_with_parent
die_with_parent(int(sys.argv[2]))
from {module} import main
main(int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)"""

_SCHEDULED: Final = 2  # the clock of the CPU time of a process, as in clock_getcpuclockid(3)

_SET_LIMIT_OF: Final[Callable[..., object] | None] = getattr(resource, "prlimit", None)
"""`prlimit`, which only Linux has."""

_STARTERS: Final[dict[int, ThreadPoolExecutor]] = {}
"""Process -> its thread that starts workers. The kernel kills a worker when the thread that started it ends, so this
thread lives as long as the process; a forked process needs its own."""


class WorkerStoppedError(Exception):
    """A worker was replaced before it replied."""

    def __init__(self, limit: LimitKind, message: str) -> None:
        super().__init__(message)
        self.limit = limit
        self.message = message


def worker_command(module: str) -> tuple[str, ...]:
    """Build the command of a worker that ends with this process and calls `main` of a module."""
    return (sys.executable, "-B", "-P", "-s", "-c", _START.format(module=module))


class WorkerProcess:
    """A process that replies to requests, and is replaced if it does not.

    The memory limit in bytes and the id of this process are appended to its command.
    """

    def __init__(self, command: Sequence[str], limits: Limits) -> None:
        self._command = (*command, str(limits.memory_bytes), str(os.getpid()))
        self._process = self._start()

    def exchange(self, request: object, seconds: float) -> Any:
        """Send a request and return the reply, both in JSON types; the program itself may use `seconds` of CPU time.

        Raise a `WorkerStoppedError` if the process died or did not reply in time; another process replaces it.
        """
        allowed = seconds + _GRACE_SECONDS
        end = monotonic() + allowed * (_PATIENCE if self._bound_time(allowed) else 1)
        over = WorkerStoppedError(LimitKind.TIME, f"the process was killed after {seconds:g} s")
        try:
            self._send(json.dumps(request).encode() + b"\n", end)
            return json.loads(self._receive(end))
        except TimeoutError:
            stopped = over
        except (BrokenPipeError, EOFError):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            died = WorkerStoppedError(LimitKind.SIZE, "the process died while it ran the program")
            stopped = over if self._process.returncode == -signal.SIGXCPU else died
        self.end()
        self._process = self._start()
        raise stopped

    def end(self) -> None:
        process = self._process
        # A dead process keeps its group until it is waited for; afterwards its id may belong to another.
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None  # noqa: S101 - requested at the start
            pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        starter = _STARTERS.setdefault(os.getpid(), ThreadPoolExecutor(1, "starts workers"))
        process = starter.submit(
            subprocess.Popen,
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env={"PYTHONPATH": str(Path(mens_pipeline.__file__).parents[1]), "PYTHONHASHSEED": "0"},
            start_new_session=True,
        ).result()
        assert process.stdin is not None  # noqa: S101 - requested above
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def _bound_time(self, seconds: float) -> bool:
        """Limit the further CPU time of the worker, and return whether the kernel enforces the limit."""
        pid = self._process.pid
        if _SET_LIMIT_OF is None:
            return False
        try:
            used = clock_gettime((~pid << 3) | _SCHEDULED)
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            _SET_LIMIT_OF(pid, resource.RLIMIT_CPU, (int(used + max(0.0, seconds)) + 2, hard))
        except OSError:
            return False  # it has died: the exchange raises
        return True

    def _send(self, data: bytes, end: float) -> None:
        assert self._process.stdin is not None  # noqa: S101 - requested at the start
        pipe = self._process.stdin.fileno()
        view = memoryview(data)
        while view:
            if not select.select([], [pipe], [], max(0.0, end - monotonic()))[1]:
                raise TimeoutError
            view = view[os.write(pipe, view) :]

    def _receive(self, end: float) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - requested at the start
        pipe = self._process.stdout.fileno()
        parts: list[bytes] = []
        while not parts or not parts[-1].endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, end - monotonic()))[0]:
                raise TimeoutError
            part = os.read(pipe, _CHUNK)
            if not part:
                raise EOFError
            parts.append(part)
        return b"".join(parts)


class WorkerPool:
    """Thread-safe pool of worker processes, started on demand and ended by `with`; `launch` starts one."""

    def __init__(
        self, num_workers: int, command: Sequence[str], limits: Limits, launch: type[WorkerProcess] = WorkerProcess
    ) -> None:
        self.num_workers = num_workers
        self.launch = launch
        self.limits = limits
        self._command = command
        self._idle: LifoQueue[WorkerProcess | None] = LifoQueue()
        for _ in range(self.num_workers):
            self._idle.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for _ in range(self.num_workers):
            worker = self._idle.get()
            if worker is not None:
                worker.end()

    @contextmanager
    def worker(self) -> Iterator[WorkerProcess]:
        worker = self._idle.get()
        try:
            if worker is None:
                worker = self.launch(self._command, self.limits)
            yield worker
        finally:
            self._idle.put(worker)


WORKER_COMMAND: Final = worker_command("mens_pipeline.language.interpreter.worker")


class Sandbox(WorkerPool):
    """A pool of worker processes that run the tests of programs; `seed` is for the arguments of properties."""

    def __init__(
        self,
        num_workers: int = 2,
        limits: Limits = DEFAULT_LIMITS,
        *,
        features: Features = NO_FEATURES,
        seed: int = 0,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        super().__init__(num_workers, command, limits)
        self._features = features
        self._seed = seed

    def kept_out(self) -> dict[str, str]:
        """Map each protection of a worker to the reason why it does not hold here, empty if it holds."""
        with self.worker() as worker:
            try:
                kept: dict[str, str] = worker.exchange(None, self.limits.program_seconds)
            except WorkerStoppedError as error:
                return {"anything": error.message}
            return kept

    def run(self, source: str, *, mode: Mode = Mode.SOURCE) -> ProgramReport:
        """Run the tests of a program as `run_tests` does; the report says `stopped` if its worker had to be killed."""
        return self._reply(source, None, mode)

    def run_with_tests(self, candidate: str, tests: str) -> ProgramReport:
        """Run hidden tests against a candidate, as the function `run_with_tests` does."""
        hidden_module(tests)
        return self._reply(candidate, tests, Mode.SOURCE)

    def map(self, sources: Iterable[str]) -> Iterator[ProgramReport]:
        """Run the tests of many programs on all workers."""
        with ThreadPoolExecutor(self.num_workers) as threads:
            yield from threads.map(self.run, sources)

    def map_with_tests(self, pairs: Iterable[tuple[str, str]]) -> Iterator[ProgramReport]:
        """Run hidden tests against many candidates on all workers."""
        with ThreadPoolExecutor(self.num_workers) as threads:
            yield from threads.map(lambda pair: self.run_with_tests(*pair), pairs)

    def _reply(self, source: str, tests: str | None, mode: Mode) -> ProgramReport:
        """Have a worker run hidden `tests`, or the program's own tests if None."""
        given = {"source": source, "tests": tests, "seed": self._seed, "mode": mode}
        request = {**given, "limits": asdict(self.limits), "features": asdict(self._features)}
        try:
            with self.worker() as worker:
                return read_report(worker.exchange(request, self.limits.program_seconds))
        except WorkerStoppedError as error:
            return ProgramReport(ProgramStatus.STOPPED, limit=error.limit, message=error.message)
