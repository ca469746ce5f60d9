"""Common parts of child processes that train or generate.

It dies with its parent, holds its device alone, and says how it ended by its exit code. Started through Dagster Pipes,
it reports what happens there as well.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from dagster_pipes import PipesEnvVarParamsLoader, open_dagster_pipes

from mens_pipeline.errors import MensError
from mens_pipeline.storage.files import is_full
from mens_pipeline.training.environment import own_environment
from mens_pipeline.training.guards import die_with_parent, exclusive
from mens_pipeline.training.job import CHECKPOINTS, COMPLETE, FAILURE, ExitCode, as_document
from mens_pipeline.training.team import Team, own_team

_NO_ROOM: Final = ("No space left on device", "File too large", "unexpected pos ", "PytorchStreamWriter failed")

Listener = Callable[[dict[str, Any]], None]
"""Takes what happens, one event at a time."""


class Job(Protocol):
    """Fields that every job has."""

    @property
    def run_dir(self) -> Path:
        """Folder of all output of the job."""
        ...

    @property
    def lock_path(self) -> Path:
        """Held while the device is in use."""
        ...

    @property
    def lock_seconds(self) -> float:
        """Seconds to wait for the lock of the device."""
        ...


J = TypeVar("J", bound=Job)


def run_as_child(read: Callable[[str], J], work: Callable[[J, Listener], bool | None]) -> None:
    """Run the job that `python -m MODULE JOB PARENT` names, and end this process.

    Args:
        read: Reads the job, which is JSON.
        work: Does it, and returns False where it was asked to stop before its end. It loads the deep learning stack,
            once all is clear.
    """
    job, parent = read(Path(sys.argv[1]).read_text(encoding="utf-8")), int(sys.argv[2])
    leave(_run(job, parent, work))


def _run(job: J, parent: int, work: Callable[[J, Listener], bool | None]) -> ExitCode:
    die_with_parent(parent)
    # Who started this process may ignore it, as Dagster does after a run in the background, and a child inherits that.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    team = own_team(own_environment())
    # Where several train together, the process that started them all holds the device.
    held = nullcontext() if team.size > 1 else holding(job)
    try:
        with listening(team) as listen, held:
            return ExitCode.INTERRUPTED if work(job, listen) is False else ExitCode.DONE
    except MensError as error:
        return fail(job, str(error))
    except Exception as error:
        if not found_no_room(error):
            raise
        advice = "Make room, and run the same again: it goes on from its newest checkpoint."
        reason = f"{job.run_dir}: no space left on its disk ({error}). {advice}"
        for checkpoint in (job.run_dir / CHECKPOINTS).glob("checkpoint-*"):
            if not (checkpoint / COMPLETE).exists():
                shutil.rmtree(checkpoint, ignore_errors=True)  # half of it is of no use, and takes the last room
        return fail(job, reason)


@contextmanager
def holding(job: Job) -> Iterator[None]:
    """Hold the device of a job for as long as the block runs; what an earlier try left word of is gone.

    Raises:
        RefusedError: Another run holds it.
    """
    (job.run_dir / FAILURE).unlink(missing_ok=True)
    with exclusive(job.lock_path, job.lock_seconds, f"the job in {job.run_dir}"):
        yield


def fail(job: Job, reason: str) -> ExitCode:
    """Leave word of why a job was refused."""
    (job.run_dir / FAILURE).write_text(as_document({"reason": reason}), encoding="utf-8")
    return ExitCode.REFUSED


def found_no_room(error: Exception) -> bool:
    """Return whether something failed because the disk is full, in whatever words a library says so.

    The system names the reason, safetensors quotes it, torch tells where its file ends.
    """
    if isinstance(error, OSError):
        return is_full(error)
    return any(words in str(error) for words in _NO_ROOM)


def leave(code: ExitCode) -> None:
    """End this process at once: threads of the libraries must not keep a finished one alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextmanager
def listening(team: Team) -> Iterator[Listener]:
    """Yield what takes events: Pipes, if it started the process; of several the first alone reports."""
    if not team.is_first or not PipesEnvVarParamsLoader().is_dagster_pipes_process():  # type: ignore[no-untyped-call]
        yield lambda _event: None
        return
    with open_dagster_pipes() as pipes:
        yield pipes.report_custom_message
