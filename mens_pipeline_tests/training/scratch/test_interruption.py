"""Runs from scratch that are killed, stopped and taken up again end with the model they would have had."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.training import launch
from mens_pipeline.training.environment import training_environment
from mens_pipeline.training.job import ExitCode, newest_checkpoint
from mens_pipeline.training.launch import run_child
from mens_pipeline.training.scratch.job import MODULE, WEIGHTS
from mens_pipeline.training.scratch.prepare import PreparedScratch
from mens_pipeline.training.telemetry_log import FILE
from mens_pipeline_tests.training.processes import training_children
from mens_pipeline_tests.training.scratch.runs import prepared

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small model takes many steps a second; a signal must not come too late."""
    monkeypatch.setattr(launch, "_POLL_SECONDS", 0.01)


def _run(run: PreparedScratch, *, signal_at: int | None = None, number: int = signal.SIGKILL) -> int:
    """Run a job to its end, or send its process a signal once it has told of a step."""
    is_sent = threading.Event()

    def poll() -> None:
        if signal_at is None or is_sent.is_set() or _updates(run) < signal_at:
            return
        is_sent.set()
        for child in training_children(MODULE):
            os.kill(child, number)

    return run_child(MODULE, run.job_path, training_environment(), poll, 60, run.job.run_dir / "child.log")


def _updates(run: PreparedScratch) -> int:
    path = run.job.run_dir / FILE
    lines = path.read_text().splitlines() if path.is_file() else []
    return sum(json.loads(line)["event"] == "step" for line in lines if line.endswith("}"))


def _weights(run: PreparedScratch) -> bytes:
    return (run.job.run_dir / WEIGHTS).read_bytes()


def _prepared(folder: Path, **fields: Any) -> PreparedScratch:
    """Four epochs with dropout, which a resumed run must draw the same."""
    return prepared(folder, num_train_epochs=4, **fields)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of a run that nobody touched."""
    run = _prepared(tmp_path_factory.mktemp("whole"))
    assert _run(run) == ExitCode.DONE
    return _weights(run)


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, uninterrupted: bytes) -> None:
    """SIGKILL in the middle of a step or a checkpoint: the same model, bit for bit."""
    run = _prepared(tmp_path)
    assert _run(run, signal_at=5) == -signal.SIGKILL
    assert _run(run) == ExitCode.DONE

    assert _weights(run) == uninterrupted


def test_a_run_that_is_asked_to_stop_writes_a_checkpoint(tmp_path: Path, uninterrupted: bytes) -> None:
    """SIGTERM: exit code 143, a whole checkpoint though none was due, which is a model; and then the same model."""
    from mens_pipeline.training.scratch.auto import load_scratch_model  # noqa: PLC0415 - loads the stack

    run = _prepared(tmp_path, save_steps=1000)
    assert _run(run, signal_at=2, number=signal.SIGTERM) == ExitCode.INTERRUPTED
    checkpoint = newest_checkpoint(run.job.run_dir)
    assert checkpoint is not None
    model, tokenizer = load_scratch_model(checkpoint)
    assert model.num_parameters() == 892_928
    assert len(tokenizer) == 133
    assert _run(run) == ExitCode.DONE

    assert _weights(run) == uninterrupted
