"""Run a job inside its process: load its kind, hold its device, and report its end."""

import os
import shutil
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from mens_pipeline.errors import MensError, RefusedError, describe_machine_problem
from mens_pipeline.jobs.agent import own_team, start_ranks
from mens_pipeline.jobs.device import exclusive
from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.jobs.local import die_with_parent, job_command
from mens_pipeline.jobs.protocol import CHECKPOINTS, COMPLETE, FAILURE, ExitCode, Job, fail
from mens_pipeline.storage.documents import hold_folder
from mens_pipeline.storage.files import is_full
from mens_pipeline.storage.validation import Strict, errors_in


class JobKind(NamedTuple):
    """A kind of job: its parameters, a subclass of `Job`, and its function, each as `module:name`.

    The function receives the parameters, and returns False if it stopped early on request.
    """

    parameters: str
    function: str


KINDS: Final[Mapping[str, JobKind]] = {
    "train": JobKind("mens_pipeline.training.recipe:TrainingJob", "mens_pipeline.training.train:train"),
    "scratch": JobKind("mens_pipeline.scratch.run:ScratchJob", "mens_pipeline.scratch.train:train"),
    "generate": JobKind(
        "mens_pipeline.inference.generation:GenerationJob", "mens_pipeline.inference.generate:generate"
    ),
    "merge": JobKind("mens_pipeline.delivery.agreement:MergeJob", "mens_pipeline.delivery.merged_model:merge"),
    "gguf": JobKind("mens_pipeline.delivery.agreement:GgufJob", "mens_pipeline.delivery.gguf:export"),
}


_ADVICE: Final = "Commands such as `mens train` write and start jobs; run one of them."


class _Named(Strict, extra="ignore"):
    kind: str


def read_job(path: Path) -> Job:
    """Read a job as the parameters of its kind; raise a `RefusedError` if it is malformed."""
    try:
        text = path.read_text(encoding="utf-8")
        kind = _Named.model_validate_json(text).kind
        if kind not in KINDS:
            raise RefusedError(f"{path}: kind {kind!r}, expected one of {', '.join(KINDS)}. {_ADVICE}")
        job: Job = _load(KINDS[kind].parameters).model_validate_json(text)
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror or error}. {_ADVICE}") from error
    except ValidationError as error:
        raise RefusedError(f"{path}: not a valid job ({errors_in(error)}). {_ADVICE}") from error
    return job


def load_function(job: Job) -> Callable[[Job], bool | None]:
    """Return the function of a job; this loads the deep learning stack."""
    function: Callable[[Job], bool | None] = _load(KINDS[job.kind].function)
    return function


def _load(name: str) -> Any:
    module, _, member = name.partition(":")
    return getattr(import_module(module), member)


_NO_ROOM: Final = ("No space left on device", "File too large", "unexpected pos ", "PytorchStreamWriter failed")


def main(arguments: Sequence[str]) -> ExitCode:
    """Run the job that a file describes: in this process, in several, or on a Ray cluster.

    `arguments` are the path of the job, the id of the parent process to end with (optional), `--ranks N` and `--ray`.
    """
    parser = ArgumentParser(prog="python -m mens_pipeline.jobs")
    parser.add_argument("job", type=Path)
    parser.add_argument("parent", type=int, nargs="?")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--ray", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.parent is not None:
        die_with_parent(asked.parent)
    # The parent may ignore SIGTERM, as Dagster does after a run in the background, and a child inherits that.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        job = read_job(asked.job)
    except MensError as error:  # the run folder, which records failures, is not known yet
        parser.exit(ExitCode.CRASHED, f"{parser.prog}: {error}\n")
    try:
        if asked.ray:
            from mens_pipeline.jobs.ray import run_workers  # noqa: PLC0415 - needs an extra

            return run_workers(job, asked.job)
        if asked.ranks > 1:
            with _holding(job):
                return start_ranks(job_command(asked.job), asked.ranks)
        return _do(job)
    except MensError as error:
        return fail(job, str(error))


def _do(job: Job) -> ExitCode:
    # With several ranks, the process that started them holds the device.
    is_alone = own_team(own_environment()).size == 1
    with _holding(job) if is_alone else nullcontext():
        try:
            return ExitCode.INTERRUPTED if load_function(job)(job) is False else ExitCode.DONE
        except Exception as error:
            if (reason := find_reason(job, error)) is None:
                raise
            return fail(job, reason)


def find_reason(job: Job, error: Exception) -> str | None:
    """Return the reason of a refusal or machine problem, None for a bug; delete partial checkpoints on a full disk."""
    if isinstance(error, MensError):
        return str(error)
    if not found_no_room(error):
        problem = describe_machine_problem(error)
        return problem and f"{job.run_dir}: {problem}"
    advice = "Make room, and run the command again: it resumes from its newest checkpoint."
    for checkpoint in (job.run_dir / CHECKPOINTS).glob("checkpoint-*"):
        if not (checkpoint / COMPLETE).exists():
            shutil.rmtree(checkpoint, ignore_errors=True)  # it is incomplete, and uses the last free space
    return f"{job.run_dir}: no space left on its disk ({error}). {advice}"


@contextmanager
def _holding(job: Job) -> Iterator[None]:
    """Hold the folder and the device of a job while the block runs, and delete the failure of an earlier attempt."""
    (job.run_dir / FAILURE).unlink(missing_ok=True)
    with hold_folder(job.run_dir), exclusive(job.lock_path, job.lock_seconds, f"the job in {job.run_dir}"):
        yield


def found_no_room(error: Exception) -> bool:
    """Return whether an exception means a full disk.

    The system names the cause, safetensors quotes it, and torch only reports a wrong position in its file.
    """
    if isinstance(error, OSError):
        return is_full(error)
    return any(words in str(error) for words in _NO_ROOM)


def leave(code: ExitCode) -> None:
    """End this process immediately: library threads must not keep a finished process alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
