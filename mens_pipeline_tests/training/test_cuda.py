"""Training on a card; skipped where there is none."""

import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.settings import training_environment
from mens_pipeline.training.devices import DeviceChoice
from mens_pipeline.training.job import MODULE, RESULT, ExitCode
from mens_pipeline.training.launch import run_child
from mens_pipeline_tests.training.runs import prepared

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _card() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA device")


def test_a_card_trains_every_matrix_in_bfloat16(tiny_base: Path, tmp_path: Path) -> None:
    """NF4, paged 8-bit AdamW, activation checkpointing: every matrix changes, the base does not."""
    recipe: dict[str, Any] = {"num_train_epochs": 4, "save_steps": 1000, "bnb_4bit_compute_dtype": "auto"}
    run = prepared(tiny_base, tmp_path, choice=DeviceChoice.CUDA, **recipe)
    code = run_child(MODULE, run.job_path, training_environment(), lambda: None, 60, tmp_path / "child.log")
    assert code == ExitCode.DONE, (tmp_path / "child.log").read_text()[-2000:]
    result = json.loads((run.job.run_dir / RESULT).read_text())

    assert (result["device"], result["compute_dtype"]) == ("cuda", "bfloat16")
    assert result["num_changed_matrices"] == result["num_adapter_matrices"] > 0
