"""The protocol between a job and its parent: the job itself, exit codes, and the files in the folder of a job."""

import json
import os
import shutil
import signal
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from mens_pipeline.errors import SMALLER, RefusedError
from mens_pipeline.storage.jsonl import replacing
from mens_pipeline.storage.validation import Strict

JOB: Final = "job.json"
RESULT: Final = "result.json"
FAILURE: Final = "failure.json"
LOG: Final = "child.log"
"""Output of the process and its libraries."""

STOP: Final = "stop"
"""File that makes workers on a cluster stop; no signal reaches them."""

_LAST_WORDS: Final = 1_500
"""Characters at the end of a log that a message shows."""

CHECKPOINTS: Final = "checkpoints"
COMPLETE: Final = "complete"
"""File that marks a checkpoint as complete."""


class ExitCode(IntEnum):
    """Exit codes of the process of a job."""

    DONE = 0
    CRASHED = 1
    REFUSED = 3
    """`failure.json` contains the reason."""
    INTERRUPTED = 143
    """Stopped on request; a resumable job has written a checkpoint."""


class Job(Strict):
    """A job with all its parameters; each kind adds its own fields."""

    kind: str = Field(description="Kind of the job, a key of `KINDS`.")
    run_dir: Path = Field(description="Folder of all files of the job.")
    lock_path: Path = Field(description="Lock of the device, held while the job uses it.")
    lock_seconds: float = Field(default=120.0, ge=0, description="Seconds to wait for another holder.")

    @property
    def path(self) -> Path:
        """Path of the document that the process of the job reads."""
        return self.run_dir / JOB


def write_job(job: Job) -> Path:
    """Empty the folder of a job, write the job into it, and return the path."""
    shutil.rmtree(job.run_dir, ignore_errors=True)
    job.run_dir.mkdir(parents=True)
    job.path.write_text(job.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return job.path


def as_document(values: dict[str, Any]) -> str:
    """Format JSON for a file that people read."""
    return json.dumps(values, indent=2, sort_keys=True) + "\n"


def write_document(path: Path, values: dict[str, Any]) -> None:
    """Write a document of a job atomically and durably."""
    with replacing(path) as target:
        target.write(as_document(values).encode())
        target.flush()
        os.fsync(target.fileno())


def read_result(run_dir: Path) -> dict[str, Any] | None:
    """Read the result of a job; None if it is missing or truncated."""
    try:
        result = json.loads((run_dir / RESULT).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) else None


def fail(job: Job, reason: str) -> ExitCode:
    """Write the reason of a refusal for the parent, and return the exit code."""
    (job.run_dir / FAILURE).write_text(as_document({"reason": reason}), encoding="utf-8")
    return ExitCode.REFUSED


def find_exit_code(run_dir: Path) -> ExitCode:
    """Infer the exit code of a training run from the files that it left."""
    if read_result(run_dir) is not None:
        return ExitCode.DONE
    left = {FAILURE: ExitCode.REFUSED, STOP: ExitCode.INTERRUPTED}
    return next((code for name, code in left.items() if (run_dir / name).exists()), ExitCode.CRASHED)


def mark_complete(checkpoint: Path) -> None:
    """Mark a checkpoint as complete, with the size of each of its files, once all are on the disk."""
    sizes = {}
    for path in sorted(checkpoint.rglob("*")):
        if path.is_file() and path.name != COMPLETE:
            with path.open("rb") as content:
                os.fsync(content.fileno())
            sizes[path.relative_to(checkpoint).as_posix()] = path.stat().st_size
    with (checkpoint / COMPLETE).open("w", encoding="utf-8") as mark:
        mark.write(as_document(sizes))
        mark.flush()
        os.fsync(mark.fileno())


def newest_checkpoint(run_dir: Path) -> Path | None:
    """Return the newest complete checkpoint of a run, or None."""
    complete = [path.parent for path in (run_dir / CHECKPOINTS).glob(f"checkpoint-*/{COMPLETE}") if _is_whole(path)]
    return max(complete, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)


def _is_whole(mark: Path) -> bool:
    """Return whether the files of a checkpoint have their recorded sizes; a power cut may leave empty files."""
    try:
        sizes = json.loads(mark.read_text(encoding="utf-8", errors="replace"))
        return all((mark.parent / name).stat().st_size == size for name, size in sizes.items())
    except (ValueError, AttributeError, OSError, RecursionError):
        return False


def refuse_failure(run_dir: Path, code: int, what: str) -> None:
    """Raise a `RefusedError` with the reason if a job is not done."""
    if code == ExitCode.DONE:
        return
    if code == ExitCode.INTERRUPTED:
        raise RefusedError(f"{run_dir}: interrupted. Run the command again; it reuses finished work.")
    if code == ExitCode.REFUSED:
        raise RefusedError(json.loads((run_dir / FAILURE).read_text(encoding="utf-8"))["reason"])
    log = run_dir / LOG
    is_killed = code == -signal.SIGKILL
    ended = f"was killed, perhaps because memory ran out. {SMALLER}" if is_killed else f"ended with exit code {code}."
    words = log.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS:] if log.is_file() else ""
    raise RefusedError(f"{run_dir}: the {what} process {ended} The end of its log ({log}):\n{words}")
