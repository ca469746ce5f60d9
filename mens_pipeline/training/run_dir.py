"""The folder of a run: that it is this run's, that it lies where it seems to, and how the run is laid out in it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.protocol import JOB, as_document
from mens_pipeline.models.adapter import refuse_links
from mens_pipeline.storage.jsonl import write_text
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline.training.job import CONTRACT, PREFLIGHT

_ADVICE = "Name another --output-dir, or begin anew with --force-restart."


_SHOWN: Final = 12


def by_id(digest: str) -> Path:
    """Return the folder of a run that was given none: another contract never gets the same."""
    return Path("runs") / digest[:_SHOWN]


def work_folder(store: ArtifactStore, kind: str, digest: str) -> Path:
    """Return the folder that a run of the graph works in: the same for the same contract, so that a retry goes on."""
    return store.root / kind / f".work-{digest}"


def point_latest(run_dir: Path) -> None:
    """Let `latest` beside a run name it.

    Raises:
        RefusedError: A folder of this name is in the way.
    """
    latest = run_dir.with_name("latest")
    if latest.is_dir() and not latest.is_symlink():
        raise RefusedError(f"{latest}: a folder, and the name of the run that was begun last. Give it another name.")
    temporary = latest.with_name(f".latest.{os.getpid()}")
    temporary.symlink_to(run_dir.name)
    temporary.replace(latest)


def claimed(folder: Path | Callable[[str], Path], digest: str, *, is_new: bool) -> Path:
    """Return the folder of a run, perhaps by its contract, if it lies there and holds no other run.

    Raises:
        RefusedError: It holds a link, or another run that does not give way to a new one.
    """
    run_dir = folder if isinstance(folder, Path) else folder(digest)
    refuse_links(run_dir)
    if not is_new:
        _refuse_another_run(run_dir, digest)
    return run_dir


def _refuse_another_run(run_dir: Path, digest: str) -> None:
    """Check that a folder does not hold a run of another contract.

    Raises:
        RefusedError: It does, or does not say which run it holds.
    """
    path = run_dir / CONTRACT
    if not path.is_file():
        return
    try:
        found = str(json.loads(path.read_text(encoding="utf-8"))["digest"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise RefusedError(f"{path}: does not say which run this is ({type(error).__name__}). {_ADVICE}") from error
    if found != digest:
        raise RefusedError(
            f"{run_dir}: holds another run (contract {found[:12]}, this one is {digest[:12]}). {_ADVICE}"
        )


def lay_out(
    run_dir: Path, job: BaseModel, contract: dict[str, Any], preflight: dict[str, Any], *, is_new: bool
) -> Path:
    """Write the job of a training process, and what was looked at before; return where the job stands.

    Raises:
        ConfigurationError: The folder cannot be written.
    """
    if is_new and (run_dir / JOB).is_file():
        shutil.rmtree(run_dir)
    write_text(run_dir / CONTRACT, as_document(contract))
    write_text(run_dir / PREFLIGHT, as_document(preflight))
    write_text(run_dir / JOB, job.model_dump_json(indent=2) + "\n")
    return run_dir / JOB
