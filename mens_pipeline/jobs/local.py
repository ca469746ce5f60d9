"""Run jobs as child processes on this machine: start, watch and end them."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.environment import ray_environment, training_environment
from mens_pipeline.jobs.protocol import LOG, RESULT, ExitCode, read_result, refuse_failure

_ENTRY: Final = f"{__package__}"
_PR_SET_PDEATHSIG: Final = 1
_PARENT_GONE: Final = 75
_POLL_SECONDS: Final = 0.2


def python_command(module: str, *arguments: str) -> list[str]:
    """Build the command that runs a module in a new Python process.

    `-P` keeps the current folder off `sys.path`: an untrusted workspace may contain a `pip.py` or `pydantic.py`.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def job_command(job_path: Path, *options: str) -> list[str]:
    """Build the command of a job whose process ends with this one."""
    return python_command(_ENTRY, str(job_path), str(os.getpid()), *options)


def run_job(  # noqa: PLR0913 - options of a process
    job_path: Path,
    poll: Callable[[], None] = lambda: None,
    *,
    grace_seconds: float = 20.0,
    num_ranks: int = 1,
    on_ray: bool = False,
    variables: Mapping[str, str] | None = None,
) -> int:
    """Run a job in a process group of its own until it ends, and return its exit code (see `ExitCode`).

    Any exception here ends the job: SIGTERM, `grace_seconds` to write a checkpoint, then SIGKILL for its group. Ranks,
    one per device, end with the process that started them. The output goes to `child.log` next to the job. `poll` is
    called a few times a second while the job runs, and once after its end. With `on_ray`, a Ray cluster places the
    workers. `variables` are added to the environment of every job.
    """
    environment = ray_environment() if on_ray else training_environment(num_ranks)
    ranks = ["--ranks", str(num_ranks)] if num_ranks > 1 and not on_ray else []
    command = job_command(job_path, *ranks, *(["--ray"] if on_ray else []))
    with job_path.with_name(LOG).open("ab") as output:
        child = subprocess.Popen(  # noqa: S603 - our own command
            command,
            env={**environment, **(variables or {})},
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            process_group=0,
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
        os.killpg(child.pid, signal.SIGKILL)  # the rest of its group
    child.wait()


def die_with_parent(parent: int) -> None:
    """Have the system send SIGTERM when the parent ends; exit if it has ended already. Only Linux supports this."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(_PARENT_GONE)


def result_after(run_dir: Path, code: int) -> dict[str, Any]:
    """Return the result of a training run; raise a `RefusedError` with the reason if it is not done."""
    refuse_failure(run_dir, code, "training")
    result = read_result(run_dir)
    if result is None:
        raise RefusedError(f"{run_dir}: the training process wrote no {RESULT}. Run the command again.")
    return result
