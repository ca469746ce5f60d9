"""The training processes that still run."""

import json
import os
import signal
import threading
from collections.abc import Iterable
from pathlib import Path

from mens_pipeline.training.environment import training_environment
from mens_pipeline.training.job import MODULE
from mens_pipeline.training.launch import run_child
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.scratch.job import MODULE as SCRATCH
from mens_pipeline.training.scratch.prepare import PreparedScratch
from mens_pipeline.training.telemetry_log import FILE

_PROCESSES = Path("/proc")


def training_children(module: str = MODULE) -> list[int]:
    """Ids of the live training processes below this one; processes of other kinds, and dead ones, are no concern.

    Args:
        module: What runs in them.
    """
    listings = Path("/proc/self/task").glob("*/children")
    return _training((number for listing in listings for number in listing.read_text().split()), module=module)


def training_processes(folder: Path) -> list[int]:
    """Ids of the live training processes with a job below a folder, whoever started them.

    Args:
        folder: Where the job lies.
    """
    numbers = (path.name for path in _PROCESSES.iterdir() if path.name.isdigit())
    return _training(numbers, str(folder).encode())


def _training(numbers: Iterable[str], argument: bytes = b"", module: str = MODULE) -> list[int]:
    found = []
    for number in numbers:
        try:
            # A dead process that nobody has waited for has no command line.
            command = (_PROCESSES / number / "cmdline").read_bytes()
        except OSError:
            continue
        if module.encode() in command and argument in command:
            found.append(int(number))
    return found


def run_signalled(
    run: PreparedRun | PreparedScratch,
    *,
    signal_at: int | None = None,
    number: int = signal.SIGKILL,
) -> int:
    """Run a job to its end, or send its process a signal once it has told of a step.

    Args:
        run: What was prepared.
        signal_at: Steps that it has told of by then.
        number: The signal.
    """
    module = SCRATCH if isinstance(run, PreparedScratch) else MODULE
    is_sent = threading.Event()

    def poll() -> None:
        if signal_at is None or is_sent.is_set() or steps_told(run) < signal_at:
            return
        is_sent.set()
        for child in training_children(module):
            os.kill(child, number)

    return run_child(module, run.job_path, training_environment(), poll, 60, run.job.run_dir / "child.log")


def steps_told(run: PreparedRun | PreparedScratch) -> int:
    """Count the steps in the log of a run, which may still be written."""
    path = run.job.run_dir / FILE
    lines = path.read_text().splitlines() if path.is_file() else []
    return sum(json.loads(line)["event"] == "step" for line in lines if line.endswith("}"))
