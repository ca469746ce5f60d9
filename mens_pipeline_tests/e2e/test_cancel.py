"""A training process ends with its run and with its server."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mens_pipeline.jobs.protocol import newest_checkpoint
from mens_pipeline_tests.e2e.server import Server, serving
from mens_pipeline_tests.jobs.processes import job_processes
from mens_pipeline_tests.training.runs import FAST
from mens_pipeline_tests.training.tiny_base import write_tiny_base
from mens_pipeline_tests.waits import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

_RECIPE = {**FAST, "num_train_epochs": 200, "save_steps": 5}


@pytest.fixture
def server(tmp_path: Path, seed_run: Path) -> Iterator[Server]:
    """A server with a long training of a tiny base; the train set exists."""
    shutil.copytree(seed_run / "store", tmp_path / "store")
    recipe = {**_RECIPE, "model_name_or_path": write_tiny_base(tmp_path / "base")}
    fields = {f"MENS_TRAIN_{name.upper()}": str(value) for name, value in recipe.items()}
    with serving(tmp_path, {**os.environ, **fields, "VOX_BACKEND": "cpu"}) as found:
        yield found


def _start_training(server: Server, folder: Path) -> str:
    before = _find_checkpoint(folder)
    run = server.launch("whole_graph", {"ops": {"qlora_adapter": {"config": {"preset": "tiny"}}}})
    wait_until(
        lambda: bool(job_processes(folder)) and _find_checkpoint(folder) not in {None, before},
        300,
        lambda: server.status(run),
    )
    return run


def _find_checkpoint(folder: Path) -> Path | None:
    work = next((folder / "store" / "qlora_adapter").glob(".work-*"), None)
    return newest_checkpoint(work) if work is not None else None


def test_training_ends_with_its_run_and_with_its_server(server: Server, tmp_path: Path) -> None:
    """The button in the page, then SIGKILL for the server, its daemon, its code servers and the run worker.

    The run is cancelled and the process ends; its checkpoint remains, and the next run resumes from it.
    """
    run = _start_training(server, tmp_path)
    server.terminate(run)

    assert server.wait(run, 120) == "CANCELED"
    wait_until(lambda: not job_processes(tmp_path), 30, lambda: f"still there: {job_processes(tmp_path)}")
    assert _find_checkpoint(tmp_path) is not None

    _start_training(server, tmp_path)
    os.killpg(server.process.pid, signal.SIGKILL)

    wait_until(lambda: not job_processes(tmp_path), 60, lambda: f"still there: {job_processes(tmp_path)}")
    assert _find_checkpoint(tmp_path) is not None
