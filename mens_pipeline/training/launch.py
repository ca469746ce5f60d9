"""A child process from outside: started, watched, and never left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.training.job import AGENT, FAILURE, RESULT, ExitCode, result_of

_POLL_SECONDS: Final = 0.2
_LAST_WORDS: Final = 1_500
"""Characters of a log that a message shows."""


def python_command(module: str, *arguments: str) -> list[str]:
    """Build the command that runs a module in a Python process of its own.

    `-P` keeps the current folder off `sys.path`: it may be a workspace whose `pip.py` or `pydantic.py` is not ours.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def run_child(  # noqa: PLR0913, PLR0917 - what a process is started with
    module: str,
    job_path: Path,
    environment: Mapping[str, str],
    poll: Callable[[], None],
    grace_seconds: float,
    log: Path,
    num_processes: int = 1,
) -> int:
    """Run a job in a process of its own, in a group of its own, until it ends.

    Whatever ends the wait, ends the child: first SIGTERM, upon which it writes a checkpoint, then SIGKILL for its whole
    group. Several processes end with the one that started them.

    Args:
        module: What runs it: `mens_pipeline.training.child`, or that of evaluation.
        job_path: The job as JSON.
        environment: Of the child.
        poll: Called a few times a second while it runs, and once after its end.
        grace_seconds: How long it may take to write its checkpoint.
        log: Takes what the child and its libraries print.
        num_processes: How many work on the job together, one a device.

    Returns:
        Its exit code; see `ExitCode`.
    """
    command = python_command(module, str(job_path), str(os.getpid()))
    if num_processes > 1:
        command = python_command(AGENT, module, str(num_processes), str(job_path), str(os.getpid()))
    with log.open("ab") as output:
        child = subprocess.Popen(  # noqa: S603 - our own command
            command, env=dict(environment), stdout=output, stderr=output, stdin=subprocess.DEVNULL, process_group=0
        )
        try:
            while child.poll() is None:
                poll()
                time.sleep(_POLL_SECONDS)
        except BaseException:
            _end(child, grace_seconds)
            raise
    poll()
    return ExitCode.INTERRUPTED if child.returncode == -signal.SIGTERM else child.returncode


@contextmanager
def polled(poll: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call something again and again in a thread of its own while the block runs, and once more at its end."""
    is_over = threading.Event()

    def follow() -> None:
        while not is_over.wait(seconds):
            poll()
        poll()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _end(child: "subprocess.Popen[bytes]", grace_seconds: float) -> None:
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(grace_seconds)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # what is left of its group
    child.wait()


def refuse_failure(run_dir: Path, code: int, what: str) -> None:
    """Check that a process came to its end.

    Raises:
        RefusedError: It did not; the message says why.
    """
    if code == ExitCode.DONE:
        return
    if code == ExitCode.INTERRUPTED:
        raise RefusedError(f"{run_dir}: interrupted. Run the same again; what is done already is taken up.")
    if code == ExitCode.REFUSED:
        raise RefusedError(json.loads((run_dir / FAILURE).read_text(encoding="utf-8"))["reason"])
    log = run_dir / "child.log"
    words = log.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS:] if log.is_file() else ""
    raise RefusedError(f"{run_dir}: the {what} process ended with {code}. Its last words ({log}):\n{words}")


def result_after(run_dir: Path, code: int) -> dict[str, Any]:
    """Return what a training process left.

    Raises:
        RefusedError: It did not come to its end; the message says why.
    """
    refuse_failure(run_dir, code, "training")
    result = result_of(run_dir)
    if result is None:
        raise RefusedError(f"{run_dir}: the training process left no {RESULT}. Run the same again.")
    return result
