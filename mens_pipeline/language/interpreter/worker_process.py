"""Workers as the sandbox holds them: started, asked, killed and replaced."""

import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from queue import LifoQueue
from time import clock_gettime, monotonic
from types import TracebackType
from typing import Any, Final, Self

import mens_pipeline
from mens_pipeline.language.interpreter.limits import Limits
from mens_pipeline.language.interpreter.results import LimitKind, ProgramReport, ProgramStatus
from mens_pipeline.language.interpreter.wire import Request, report_of

_GRACE_SECONDS: Final = 2.0
"""Beyond the time of a program, for parsing, starting and answering."""

_CHUNK: Final = 65_536

_START: Final = """import sys
from mens_pipeline.language.interpreter.containment import die_with_parent
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
        """Start it.

        Its address space and this process are added to the command as the last words.
        """
        self._command = (*command, str(limits.memory_bytes), str(os.getpid()))
        self._process = self._started()

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
            return json.loads(self._received(end))
        except TimeoutError:
            stopped = WorkerStoppedError(LimitKind.TIME, f"the process was killed after {seconds:g} s")
        except (BrokenPipeError, EOFError):
            stopped = WorkerStoppedError(LimitKind.SIZE, "the process died while it ran the program")
        self.end()
        self._process = self._started()
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

    def _started(self) -> subprocess.Popen[bytes]:
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
            return  # it has died, which whoever asks it will find

    def _send(self, data: bytes, end: float) -> None:
        assert self._process.stdin is not None  # noqa: S101 - asked for when it was started
        pipe = self._process.stdin.fileno()
        view = memoryview(data)
        while view:
            if not select.select([], [pipe], [], max(0.0, end - monotonic()))[1]:
                raise TimeoutError
            view = view[os.write(pipe, view) :]

    def _received(self, end: float) -> bytes:
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

    def __init__(self, num_workers: int, command: Sequence[str], limits: Limits) -> None:
        """Set the number of processes at the same time; nothing is started yet."""
        self.num_workers = num_workers
        self.limits = limits
        self._command = command
        self._idle: LifoQueue[WorkerProcess | None] = LifoQueue()
        for _ in range(num_workers):
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
                worker = WorkerProcess(self._command, self.limits)
            yield worker
        finally:
            self._idle.put(worker)
