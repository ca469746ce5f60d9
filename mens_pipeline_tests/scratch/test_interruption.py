"""Runs from scratch that are killed or stopped, and then resumed, end with the same model."""

import signal
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.jobs.protocol import ExitCode, newest_checkpoint
from mens_pipeline.scratch.run import WEIGHTS, PreparedScratch
from mens_pipeline_tests.jobs.processes import run_signalled
from mens_pipeline_tests.scratch.runs import prepare_fast

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("watched_closely")]


def _weights(run: PreparedScratch) -> bytes:
    return (run.job.run_dir / WEIGHTS).read_bytes()


def _prepare(folder: Path, **fields: Any) -> PreparedScratch:
    return prepare_fast(folder, num_train_epochs=4, **fields)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Train without an interruption, and return the weights."""
    run = _prepare(tmp_path_factory.mktemp("whole"))
    assert run_signalled(run) == ExitCode.DONE
    return _weights(run)


def test_a_killed_run_resumes_to_the_same_model(tmp_path: Path, uninterrupted: bytes) -> None:
    run = _prepare(tmp_path)
    assert run_signalled(run, signal_at=5) == -signal.SIGKILL
    assert run_signalled(run) == ExitCode.DONE

    assert _weights(run) == uninterrupted


def test_a_run_that_gets_sigterm_writes_a_checkpoint(tmp_path: Path, uninterrupted: bytes) -> None:
    """Exit code 143, and an extra checkpoint that loads as a model; the resumed run ends with the same model."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = _prepare(tmp_path, save_steps=1000)
    assert run_signalled(run, signal_at=2, number=signal.SIGTERM) == ExitCode.INTERRUPTED
    checkpoint = newest_checkpoint(run.job.run_dir)
    assert checkpoint is not None
    model, tokenizer = (kind.from_pretrained(checkpoint) for kind in (AutoModelForCausalLM, AutoTokenizer))
    assert model.num_parameters() == 892_928
    assert len(tokenizer) == 133
    assert run_signalled(run) == ExitCode.DONE

    assert _weights(run) == uninterrupted
