"""A training process from outside: started, watched, and never left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from mens_pipeline.training.job import ExitCode

_POLL_SECONDS: Final = 0.2


def run_child(
    job_path: Path,
    environment: Mapping[str, str],
    poll: Callable[[], None],
    grace_seconds: float,
    log: Path,
) -> int:
    """Run a job in a process of its own, in a group of its own, until it ends.

    Whatever ends the wait, ends the child: first SIGTERM, upon which it writes a checkpoint, then SIGKILL for its whole
    group.

    Args:
        job_path: The job as JSON.
        environment: Of the child.
        poll: Called a few times a second while it runs, and once after its end.
        grace_seconds: How long it may take to write its checkpoint.
        log: Takes what the child and its libraries print.

    Returns:
        Its exit code; see `ExitCode`.
    """
    command = [sys.executable, "-m", "mens_pipeline.training.child", str(job_path), str(os.getpid())]
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


def _end(child: "subprocess.Popen[bytes]", grace_seconds: float) -> None:
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(grace_seconds)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # what is left of its group
    child.wait()
