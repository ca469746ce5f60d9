"""Input and output of a training process."""

import json
import os
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from mens_pipeline.storage.jsonl import replacing
from mens_pipeline.storage.validation import Strict
from mens_pipeline.training.recipe import Recipe

MODULE: Final = "mens_pipeline.training.child"
"""Module of the training process."""

AGENT: Final = "mens_pipeline.training.agent"
"""What starts several of them."""

RAY_DRIVER: Final = "mens_pipeline.training.on_ray"
"""What has them trained by a Ray cluster."""

JOB: Final = "job.json"
CONTRACT: Final = "contract.json"
PREFLIGHT: Final = "training-preflight.json"
STOP: Final = "stop"
"""Asks workers on a cluster to stop, whom no signal reaches."""

RESULT: Final = "result.json"
FAILURE: Final = "failure.json"
ADAPTER: Final = "adapter"
CHECKPOINTS: Final = "checkpoints"
COMPLETE: Final = "complete"
"""In a checkpoint: it was written to its end."""


class ExitCode(IntEnum):
    """Exit codes of a training process."""

    DONE = 0
    CRASHED = 1
    REFUSED = 3
    """`failure.json` says why."""
    INTERRUPTED = 143
    """Asked to stop; a checkpoint is written."""


class Continued(Strict):
    """Adapter and state of a run that is continued after its end."""

    adapter: Path = Field(description="The weights that it ended with.")
    adapter_sha256: str = Field(description="Of these weights, hexadecimal.")
    num_batches: int = Field(ge=0, description="Micro-batches that were shown.")
    num_steps: int = Field(ge=0, description="Optimizer steps that were made.")
    seconds: float = Field(ge=0, description="Of training.")

    def decisive(self) -> dict[str, Any]:
        """Return what decides how the run goes on, in JSON types."""
        return self.model_dump(mode="json", include={"adapter_sha256", "num_batches"})

    def as_json(self) -> dict[str, Any]:
        """Return it without the place of the file, in JSON types."""
        return self.model_dump(mode="json", exclude={"adapter"})


class TrainingJob(Strict):
    """One run, fully decided."""

    recipe: Recipe
    train_path: Path = Field(description="The train set, JSON lines.")
    base_path: Path = Field(description="The folder of the base model.")
    base_name: str = Field(description="What the base model is called wherever the adapter goes.")
    base_revision: str | None = Field(description="Which state of it on the Hub; none for a folder or a package.")
    device: str = Field(description="cuda, mps or cpu.")
    compute_dtype: str = Field(description="float32 or bfloat16: what is computed in.")
    run_dir: Path = Field(description="Where everything of the run goes.")
    system_prompt: str = Field(description="What the model is told before every prompt.")
    contract_digest: str = Field(description="What the run is, as a hash.")
    continues: Continued | None = Field(default=None, description="The run that this one goes on from, if any.")
    lock_path: Path = Field(description="Held while the device is in use.")
    lock_seconds: float = Field(default=120.0, ge=0, description="How long another holder may take to end.")


def write_document(path: Path, values: dict[str, Any]) -> None:
    """Write a document of a run; it is there whole or not at all, also after a power cut.

    Raises:
        ConfigurationError: The disk is full.
    """
    with replacing(path) as target:
        target.write(as_document(values).encode())
        target.flush()
        os.fsync(target.fileno())


def result_of(run_dir: Path) -> dict[str, Any] | None:
    """Read the result of a training process; None where there is none, or one that was cut off."""
    try:
        result = json.loads((run_dir / RESULT).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) else None


def ended(run_dir: Path) -> ExitCode:
    """Return how a training came to its end, by what it left."""
    if result_of(run_dir) is not None:
        return ExitCode.DONE
    left = {FAILURE: ExitCode.REFUSED, STOP: ExitCode.INTERRUPTED}
    return next((code for name, code in left.items() if (run_dir / name).exists()), ExitCode.CRASHED)


def mark_complete(checkpoint: Path) -> None:
    """Note that a checkpoint was written to its end, with the size of each of its files, once all are on the disk."""
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
    """Return the newest complete checkpoint of a run, if there is one."""
    complete = [path.parent for path in (run_dir / CHECKPOINTS).glob(f"checkpoint-*/{COMPLETE}") if _is_whole(path)]
    return max(complete, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)


def _is_whole(mark: Path) -> bool:
    """Return whether the files of a checkpoint are as large as they were; a power cut may leave empty ones."""
    text = mark.read_text(encoding="utf-8", errors="replace")
    if not text:
        return True  # of an earlier version
    try:
        sizes = json.loads(text)
        return all((mark.parent / name).stat().st_size == size for name, size in sizes.items())
    except (ValueError, AttributeError, OSError, RecursionError):
        return False


def as_document(values: dict[str, Any]) -> str:
    """Return JSON for a file that people read."""
    return json.dumps(values, indent=2, sort_keys=True) + "\n"
