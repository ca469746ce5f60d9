"""The script of `docs/` that passes the reward to the trainer of TRL."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.evaluation.rewarded import pair
from mens_pipeline_tests.training.tiny_base import write_tiny_base

_SCRIPT = PROJECT_ROOT / "docs" / "grpo_with_trl.py"


@pytest.mark.nightly
def test_it_takes_a_step_on_rewards_and_saves_an_adapter(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", map(pair, range(8)))
    base, folder = write_tiny_base(tmp_path / "base", positions=1024), tmp_path / "grpo"
    command = [sys.executable, "-P", str(_SCRIPT), str(tmp_path / "train.jsonl"), str(base), str(folder), "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    assert (folder / "adapter_model.safetensors").is_file()
    state = json.loads((folder / "checkpoint-1" / "trainer_state.json").read_text())
    assert state["log_history"][0]["rewards/vox/mean"] < 0
    assert len(_SCRIPT.read_text(encoding="utf-8").splitlines()) <= 40
