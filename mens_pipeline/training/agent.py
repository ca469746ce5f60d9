"""Launcher of several training processes: `python -m mens_pipeline.training.agent MODULE N JOB PARENT`.

It holds the device, starts one process for each, as `python -m torch.distributed.run --standalone` does, passes
SIGTERM on to all of them, and ends all of them when one fails.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mens_pipeline.errors import MensError
from mens_pipeline.training.child_process import fail, holding, leave
from mens_pipeline.training.guards import die_with_parent
from mens_pipeline.training.job import ExitCode, TrainingJob
from mens_pipeline.training.launch import python_command

_GRACE_SECONDS: Final = 100
"""How long a process may take to write its checkpoint; less than whoever started this one waits."""


def main(module: str, num_processes: int, job_path: Path, parent: int) -> ExitCode:
    """Run a job in several processes of a module, one a device; `parent` is the process that started this one."""
    die_with_parent(parent)
    job = TrainingJob.model_validate_json(job_path.read_text(encoding="utf-8"))
    command = python_command(module, str(job_path), str(os.getpid()))
    try:
        with holding(job), TemporaryDirectory(prefix="mens-agent-") as logs:
            return _launched(num_processes, command, logs)
    except MensError as error:
        return fail(job, str(error))


def _launched(num_processes: int, command: list[str], logs: str) -> ExitCode:
    """Run a command once for each device, until all have ended."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    options = ["--standalone", "--local-addr=localhost", f"--nproc-per-node={num_processes}"]
    options.append(f"--shutdown-timeout={_GRACE_SECONDS}")
    try:
        run(parse_args([*options, f"--log-dir={logs}", "--no-python", *command]))
    except SignalException:
        return ExitCode.INTERRUPTED
    except ChildFailedError as error:
        codes = {failure.exitcode for failure in error.failures.values()}
        return next((code for code in (ExitCode.REFUSED, ExitCode.INTERRUPTED) if code in codes), ExitCode.CRASHED)
    return ExitCode.DONE


if __name__ == "__main__":
    leave(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
