"""Live processes of jobs, and jobs that run without a process."""

import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import active_children
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import BinaryIO

from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.protocol import LOG
from mens_pipeline.jobs.run import leave, main
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.scratch.run import PreparedScratch
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.recipe import Recipe, TrainingJob

_PROCESSES = Path("/proc")


class ForkedChild(ForkProcess):
    """Takes the place of `Popen` in `run_job`: a fork of this process, which has loaded the deep learning stack.

    It computes in one thread, on which bits depend: threads of OpenMP do not survive a fork.
    """

    def __init__(self, command: list[str], *, env: Mapping[str, str], stdout: BinaryIO, **_how: object) -> None:
        super().__init__()
        self._arguments, self._environment, self._output = command[4:], env, stdout.fileno()
        self.poll, self.wait = (lambda: self.exitcode), self.join
        self.start()

    def run(self) -> None:
        """Do the job in the child, which keeps no lock of its parent."""
        import torch

        os.dup2(self._output, 2)
        os.closerange(3, 4096)
        sys.stdout = sys.stderr = os.fdopen(2, "w")
        os.environ.clear()
        os.environ.update(self._environment)
        torch.set_num_threads(1)
        leave(main(self._arguments))

    returncode = ForkProcess.exitcode


def waiting_job(lock: Path, lock_seconds: float) -> Path:
    """A job that waits for a lock and loads nothing; its folder is beside the lock."""
    run_dir = lock.parent / "run"
    run_dir.mkdir()
    job = TrainingJob(
        recipe=Recipe(),
        train_path=lock.parent / "train.jsonl",
        rows_path=lock.parent / "rows",
        base_path=lock.parent / "base",
        base_name="base",
        base_revision=None,
        device="cpu",
        compute_dtype="float32",
        run_dir=run_dir,
        system_prompt="",
        infill_order="suffix_first",
        contract_digest="0",
        lock_path=lock,
        lock_seconds=lock_seconds,
    )
    path = run_dir / "job.json"
    path.write_text(job.model_dump_json())
    return path


def job_children() -> list[int]:
    """Ids of the live processes of jobs below this one."""
    listings = Path("/proc/self/task").glob("*/children")
    forks = (child.ident for child in active_children() if isinstance(child, ForkedChild))
    jobs = _select_jobs(number for listing in listings for number in listing.read_text().split())
    return [*filter(None, forks), *jobs]


def job_processes(folder: Path) -> list[int]:
    """Ids of the live processes with a job below a folder, whoever started them."""
    numbers = (path.name for path in _PROCESSES.iterdir() if path.name.isdigit())
    return _select_jobs(numbers, str(folder).encode())


def _select_jobs(numbers: Iterable[str], argument: bytes = b"") -> list[int]:
    found = []
    for number in numbers:
        try:
            # A dead process that nobody has waited for has no command line.
            command = (_PROCESSES / number / "cmdline").read_bytes()
        except OSError:
            continue
        if b"mens_pipeline.jobs" in command and argument in command:
            found.append(int(number))
    return found


def process_of_rank(run_dir: Path, rank: int) -> int:
    """Id of the process of a rank among those of a job below a folder."""
    for process in job_processes(run_dir):
        if f"RANK={rank}".encode() in (_PROCESSES / str(process) / "environ").read_bytes().split(b"\0"):
            return process
    raise AssertionError(f"no process of rank {rank}: {(run_dir / LOG).read_text()}")


def run_signalled(
    run: PreparedRun | PreparedScratch,
    *,
    signal_at: int | None = None,
    number: int = signal.SIGKILL,
) -> int:
    """Run a job to its end, or send its process a signal once it has logged a step."""
    is_sent = threading.Event()

    def poll() -> None:
        if signal_at is None or is_sent.is_set() or steps_told(run) < signal_at:
            return
        is_sent.set()
        for child in job_children():
            os.kill(child, number)

    return run_job(run.job.path, poll, grace_seconds=60)


def steps_told(run: PreparedRun | PreparedScratch) -> int:
    """Count the steps in the log of a run, which may still be written."""
    path = run.job.run_dir / TELEMETRY
    lines = path.read_text().splitlines() if path.is_file() else []
    return sum(json.loads(line)["event"] == "step" for line in lines if line.endswith("}"))


def do_here(job_path: Path, poll: Callable[[], None] = lambda: None, **_how: object) -> int:
    """Do a job in this process, in place of `run_job`, and return its exit code.

    A new process loads the deep learning stack, which takes ten times as long as a job on a tiny base.
    """
    import torch

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with job_path.with_name(LOG).open("a") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            with warnings.catch_warnings(action="ignore"):
                code = main([str(job_path)])
        finally:
            torch.set_flush_denormal(False)  # a job that generates sets it
            for number, handler in handlers.items():
                signal.signal(number, handler)
    poll()
    return code


def do_alone(job_path: Path) -> int:
    """Do a job in this process and in one thread, on which bits depend; return its exit code."""
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return do_here(job_path)
    finally:
        torch.set_num_threads(num_threads)


def is_gone(process: int, seconds: float) -> bool:
    """Wait for the end of a process, and return whether it has ended; a zombie counts as gone."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status = Path(f"/proc/{process}/status")
        if not status.exists() or "State:\tZ" in status.read_text():
            return True
        time.sleep(0.05)
    return False
