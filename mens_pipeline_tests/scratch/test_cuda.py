"""Training from scratch on a GPU; skipped without one."""

import json
from pathlib import Path

import pytest

from mens_pipeline.jobs.device import DeviceChoice
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.protocol import RESULT, ExitCode
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.training.telemetry_log import steps_of
from mens_pipeline_tests.scratch.runs import prepare_fast

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.mark.seed_row(24)
def test_a_gpu_trains_the_full_model(tmp_path: Path) -> None:
    """In bfloat16, with weights in float32; the loss falls."""
    run = prepare_fast(tmp_path, choice=DeviceChoice.CUDA, config="default", num_train_epochs=10, save_steps=1000)
    code = run_job(run.job.path)
    assert code == ExitCode.DONE, (tmp_path / "child.log").read_text()[-2000:]
    result = json.loads((run.job.run_dir / RESULT).read_text())
    losses = [step["loss"] for step in steps_of(run.job.run_dir / TELEMETRY)]

    assert (result["device"], result["compute_dtype"]) == ("cuda", "bfloat16")
    assert result["num_parameters"] == 38_227_968
    assert losses[-1] < losses[0] / 2
