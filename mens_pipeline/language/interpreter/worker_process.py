"""One worker as the sandbox holds it: started, asked, killed and replaced."""

import json
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any, Final

import mens_pipeline
from mens_pipeline.language.interpreter.limits import Limits
from mens_pipeline.language.interpreter.results import LimitKind, ProgramReport, ProgramStatus
from mens_pipeline.language.interpreter.wire import Request, report_of

_GRACE_SECONDS: Final = 2.0
"""Beyond the time of a program, for parsing, starting and answering."""

_CHUNK: Final = 65_536


class WorkerStoppedError(Exception):
    """A worker had to be replaced before it answered.

    Attributes:
        limit: Which bound it ran into.
        message: What happened.
    """

    def __init__(self, limit: LimitKind, message: str) -> None:
        super().__init__(message)
        self.limit = limit
        self.message = message


class WorkerProcess:
    """A process that answers requests, and its replacement if it does not."""

    def __init__(self, command: Sequence[str], limits: Limits) -> None:
        """Start it.

        Args:
            command: Starts a worker; its address space is added as the last word.
            limits: The memory it gets.
        """
        self._command = (*command, str(limits.memory_bytes))
        self._process = self._started()

    def ask(self, request: Request) -> ProgramReport:
        """Have a program run.

        Args:
            request: What to run.

        Returns:
            What the worker says; or that it was stopped, because it said nothing in time or died.
        """
        try:
            return report_of(self.exchange(asdict(request), request.limits.program_seconds))
        except WorkerStoppedError as error:
            return ProgramReport(ProgramStatus.STOPPED, limit=error.limit, message=error.message)

    def exchange(self, request: object, seconds: float) -> Any:
        """Send a request and wait for the answer.

        Args:
            request: In JSON types.
            seconds: How long running programs may take; parsing, starting and answering have some time beyond.

        Returns:
            The answer in JSON types.

        Raises:
            WorkerStoppedError: It said nothing in time or died; another process has taken its place.
        """
        end = monotonic() + seconds + _GRACE_SECONDS
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
        """A fresh process in a group of its own, with no more of this one than where the package lies."""
        process = subprocess.Popen(  # noqa: S603 - our own module
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env={"PYTHONPATH": str(Path(mens_pipeline.__file__).parents[1]), "PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - asked for
        os.set_blocking(process.stdin.fileno(), False)
        return process

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
