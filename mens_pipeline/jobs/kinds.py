"""Kinds of jobs: what describes one, and what does it. Both are loaded when a job is run."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.protocol import Job
from mens_pipeline.storage.validation import Strict, errors_in


class Kind(NamedTuple):
    """Parameters, a subclass of `Job`, and function of a kind, each as `module:name`.

    The function takes the parameters, and returns False where it was asked to stop before its end.
    """

    parameters: str
    function: str


KINDS: Final[Mapping[str, Kind]] = {
    "train": Kind("mens_pipeline.training.job:TrainingJob", "mens_pipeline.training.train:train"),
    "scratch": Kind("mens_pipeline.scratch.run:ScratchJob", "mens_pipeline.scratch.train:train"),
    "generate": Kind("mens_pipeline.inference.generation:GenerationJob", "mens_pipeline.inference.generate:generate"),
    "merge": Kind("mens_pipeline.delivery.merge_job:MergeJob", "mens_pipeline.delivery.merge:merge"),
    "gguf": Kind("mens_pipeline.delivery.merge_job:GgufJob", "mens_pipeline.delivery.gguf_file:export"),
}


_ADVICE: Final = "Commands such as `mens train` write the jobs that they start; run one of them."


class _Named(Strict, extra="ignore"):
    kind: str


def read_job(path: Path) -> Job:
    """Read a job as the parameters of its kind.

    Raises:
        RefusedError: It cannot be read, is of no kind, or lacks something of its kind; the message says which.
    """
    try:
        text = path.read_text(encoding="utf-8")
        kind = _Named.model_validate_json(text).kind
        if kind not in KINDS:
            raise RefusedError(f"{path}: kind {kind!r}, expected one of {', '.join(KINDS)}. {_ADVICE}")
        job: Job = _load(KINDS[kind].parameters).model_validate_json(text)
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror or error}. {_ADVICE}") from error
    except ValidationError as error:
        raise RefusedError(f"{path}: no job ({errors_in(error)}). {_ADVICE}") from error
    return job


def function_of(job: Job) -> Callable[[Job], bool | None]:
    """Return what does a job; this loads the deep learning stack."""
    function: Callable[[Job], bool | None] = _load(KINDS[job.kind].function)
    return function


def _load(name: str) -> Any:
    module, _, member = name.partition(":")
    return getattr(import_module(module), member)
