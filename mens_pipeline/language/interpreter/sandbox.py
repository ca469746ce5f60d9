"""Programs of strangers, run in processes of their own that are kept warm and replaced when they overrun."""

import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True, slots=True)
class Request:
    """Request to a worker.

    Without `tests`, those of the program itself are run; `seed` is for the arguments of properties.
    """

    source: str
    tests: str | None
    limits: Limits
    seed: int
    features: Features
    mode: Mode = Mode.SOURCE


def request_of(record: dict[str, Any]) -> Request:
    """Build a request from its record, as `dataclasses.asdict` made it."""
    limits, features, mode = Limits(**record["limits"]), Features(**record["features"]), Mode(record["mode"])
    return Request(record["source"], record["tests"], limits, record["seed"], features, mode)


def report_record(report: ProgramReport) -> dict[str, Any]:
    """Return a report in JSON types; lines count from 1, columns from 0."""
    return {**asdict(report), "num_passed": report.num_passed, "error_class": report.error_class}


def report_of(record: dict[str, Any]) -> ProgramReport:
    """Build a report from its record."""
    return ProgramReport(
        ProgramStatus(record["status"]),
        tuple(_result_of(test) for test in record["tests"]),
        tuple(_diagnostic_of(diagnostic) for diagnostic in record["diagnostics"]),
        LimitKind(record["limit"]) if record["limit"] is not None else None,
        record["message"],
        tuple(record["notes"]),
    )


_REASONS: dict[Outcome, type[ErrorKind] | type[LimitKind] | type[Refusal]] = {
    Outcome.ERROR: ErrorKind,
    Outcome.LIMIT: LimitKind,
    Outcome.UNSUPPORTED: Refusal,
}


def _result_of(record: dict[str, Any]) -> CaseResult:
    outcome = Outcome(record["outcome"])
    kind = _REASONS.get(outcome)
    reason: Reason | None = kind(record["reason"]) if kind is not None else None
    fields = {**record, "outcome": outcome, "reason": reason, "text": TextName(record["text"])}
    return CaseResult(**{**fields, "notes": tuple(record["notes"])})


def _diagnostic_of(record: dict[str, Any]) -> Diagnostic:
    start, end = Position(**record["start"]), Position(**record["end"])
    return Diagnostic(
        Severity(record["severity"]), Code(record["code"]), record["message"], start, end, record["advice"]
    )


_GRACE_SECONDS: Final = 2.0
"""Beyond the time of a program, for parsing, starting and answering."""

_CHUNK: Final = 65_536

_START: Final = """import sys
from mens_pipeline.language.interpreter.worker import die_with_parent
die_with_parent(int(sys.argv[2]))
from {module} import main
main(int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)"""

_SCHEDULED: Final = 2
"""The clock of the CPU time of a process, as clock_getcpuclockid(3) makes it from a process id."""

_SET_LIMIT_OF: Final[Callable[..., object] | None] = getattr(resource, "prlimit", None)
"""Linux alone has it."""

_STARTERS: Final[dict[int, ThreadPoolExecutor]] = {}
"""Process -> its thread that starts workers: the kernel ends a worker with the thread that started it, so that must be
one that lives as long as the process. A process that was forked needs one of its own."""


class WorkerStoppedError(Exception):
    """A worker had to be replaced before it answered."""

    def __init__(self, limit: LimitKind, message: str) -> None:
        super().__init__(message)
        self.limit = limit
        self.message = message


def worker_command(module: str) -> tuple[str, ...]:
    """Build the command of a worker that ends with this process.

    Its `main` takes bytes of memory, requests and answers.
    """
    return (sys.executable, "-B", "-P", "-s", "-c", _START.format(module=module))


class WorkerProcess:
    """A process that answers requests, and its replacement if it does not."""

    def __init__(self, command: Sequence[str], limits: Limits) -> None:
        """Start it. Its address space and this process are added to the command as the last words."""
        self._command = (*command, str(limits.memory_bytes), str(os.getpid()))
        self._process = self._start()

    def ask(self, request: Request) -> ProgramReport:
        """Run a program in a worker.

        Returns:
            What the worker says; or that it was stopped, because it said nothing in time or died.
        """
        try:
            return report_of(self.exchange(asdict(request), request.limits.program_seconds))
        except WorkerStoppedError as error:
            return ProgramReport(ProgramStatus.STOPPED, limit=error.limit, message=error.message)

    def exchange(self, request: object, seconds: float) -> Any:
        """Send a request and return the answer, both in JSON types.

        Running programs may take so many seconds; parsing, starting and answering have some time beyond.

        Raises:
            WorkerStoppedError: It said nothing in time or died; another process has taken its place.
        """
        end = monotonic() + seconds + _GRACE_SECONDS
        self._bound_time(seconds + _GRACE_SECONDS)
        try:
            self._send(json.dumps(request).encode() + b"\n", end)
            return json.loads(self._receive(end))
        except TimeoutError:
            stopped = WorkerStoppedError(LimitKind.TIME, f"the process was killed after {seconds:g} s")
        except (BrokenPipeError, EOFError):
            stopped = WorkerStoppedError(LimitKind.SIZE, "the process died while it ran the program")
        self.end()
        self._process = self._start()
        raise stopped

    def end(self) -> None:
        """Kill it and whatever it may have started."""
        process = self._process
        # A process that died by itself is still a group until it is waited for; one that was waited for may have left
        # its number to another.
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None  # noqa: S101 - asked for when it was started
            pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        """Start a process in a group of its own, which gets no more of this one than where the package lies."""
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
        assert process.stdin is not None  # noqa: S101 - asked for
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def _bound_time(self, seconds: float) -> None:
        """Let the kernel end the worker after so much more CPU time, should this process be held up meanwhile."""
        pid = self._process.pid
        if _SET_LIMIT_OF is None:
            return
        try:
            used = clock_gettime((~pid << 3) | _SCHEDULED)
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            _SET_LIMIT_OF(pid, resource.RLIMIT_CPU, (int(used + max(0.0, seconds)) + 2, hard))
        except OSError:
            return  # it has died, which the next request finds

    def _send(self, data: bytes, end: float) -> None:
        assert self._process.stdin is not None  # noqa: S101 - asked for when it was started
        pipe = self._process.stdin.fileno()
        view = memoryview(data)
        while view:
            if not select.select([], [pipe], [], max(0.0, end - monotonic()))[1]:
                raise TimeoutError
            view = view[os.write(pipe, view) :]

    def _receive(self, end: float) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - asked for when it was started
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
    """Worker processes, started when they are first needed; a context manager, since they must be ended.

    It may be used from several threads.
    """

    def __init__(
        self, num_workers: int, command: Sequence[str], limits: Limits, launch: type[WorkerProcess] = WorkerProcess
    ) -> None:
        """Set the number of processes at the same time; nothing is started yet. `launch` is where they run."""
        self.num_workers = num_workers
        self.launch = launch
        self.limits = limits
        self._command = command
        self._idle: LifoQueue[WorkerProcess | None] = LifoQueue()
        for _ in range(self.num_workers):
            self._idle.put(None)

    def __enter__(self) -> Self:
        """Start the processes at the first request."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the workers."""
        for _ in range(self.num_workers):
            worker = self._idle.get()
            if worker is not None:
                worker.end()

    @contextmanager
    def worker(self) -> Iterator[WorkerProcess]:
        """Lend a process for the time of the body."""
        worker = self._idle.get()
        try:
            if worker is None:
                worker = self.launch(self._command, self.limits)
            yield worker
        finally:
            self._idle.put(worker)


WORKER_COMMAND: Final = worker_command("mens_pipeline.language.interpreter.worker")


class Sandbox(WorkerPool):
    """A pool of worker processes that run the tests of programs."""

    def __init__(
        self,
        num_workers: int = 2,
        limits: Limits = DEFAULT_LIMITS,
        *,
        features: Features = NO_FEATURES,
        seed: int = 0,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        """Set limits and environment; nothing is started yet. `seed` is for the arguments of properties."""
        super().__init__(num_workers, command, limits)
        self._features = features
        self._seed = seed

    def kept_out(self) -> dict[str, str]:
        """Describe what the system keeps from programs here, as a worker found when it was confined.

        Returns:
            What is kept from them -> why it is not kept here; empty where it is.
        """
        with self.worker() as worker:
            try:
                kept: dict[str, str] = worker.exchange(None, self.limits.program_seconds)
            except WorkerStoppedError as error:
                return {"anything": error.message}
            return kept

    def run(self, source: str, *, mode: Mode = Mode.SOURCE) -> ProgramReport:
        """Run the tests of a program.

        Returns:
            As `run_tests`; a program that cannot be stopped from inside is `stopped` from outside.
        """
        return self._reply(Request(source, None, self.limits, self._seed, self._features, mode))

    def run_with_tests(self, candidate: str, tests: str) -> ProgramReport:
        """Run hidden tests against a candidate, as the function of the same name.

        Raises:
            ConfigurationError: The tests themselves are rejected, or there are none.
        """
        hidden_module(tests)
        return self._reply(Request(candidate, tests, self.limits, self._seed, self._features))

    def map(self, sources: Iterable[str]) -> Iterator[ProgramReport]:
        """Run the tests of many programs on all workers."""
        with ThreadPoolExecutor(self.num_workers) as threads:
            yield from threads.map(self.run, sources)

    def map_with_tests(self, pairs: Iterable[tuple[str, str]]) -> Iterator[ProgramReport]:
        """Judge many candidates on all workers; refuse tests as `run_with_tests` does."""
        with ThreadPoolExecutor(self.num_workers) as threads:
            yield from threads.map(lambda pair: self.run_with_tests(*pair), pairs)

    def _reply(self, request: Request) -> ProgramReport:
        with self.worker() as worker:
            return worker.ask(request)
