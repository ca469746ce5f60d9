"""`mens run` from the seed data to a verdict, with a base model small enough for every night's tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.training.runs import FAST
from mens_pipeline_tests.training.tiny_base import write_tiny_base

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

_EXAM = "max_new_tokens: 100\nbase_tasks: 4\nfew_shot_tasks: 2\nfamily_tasks: 2\n"
_MENS = """
import sys
from pathlib import Path
from mens_pipeline import settings
settings.EVALUATION = Path(sys.argv.pop(1))
from mens_pipeline.cli.main import main
main()
"""
"""`mens` with another exam: to hold what random weights write in full length to the language takes minutes."""


def _run(folder: Path) -> "subprocess.CompletedProcess[str]":
    recipe = {**FAST, "model_name_or_path": folder / "base", "max_steps": 12, "max_length": 512}
    environment = {
        **os.environ,
        **{f"MENS_TRAIN_{name.upper()}": str(value) for name, value in recipe.items()},
        "DAGSTER_HOME": str(folder / "home"),
        "MENS_STORE_ROOT": str(folder / "store"),
        "MENS_CACHE_ROOT": str(folder / "cache"),
        "VOX_BACKEND": "cpu",
        "VOX_BENCHMARK": "0",
    }
    (folder / "evaluation.yaml").write_text(_EXAM)
    command = [sys.executable, "-c", _MENS, str(folder / "evaluation.yaml"), "run", "--preset", "tiny"]
    return subprocess.run(command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.seed_row(77)
def test_random_weights_are_trained_judged_and_refused(tmp_path: Path) -> None:
    """Every stage is real; the gate says no, nothing is promoted, and the second time nothing is made again."""
    write_tiny_base(tmp_path / "base")
    first, second = _run(tmp_path), _run(tmp_path)

    assert first.returncode == second.returncode == 1, first.stderr[-3000:]
    assert "warning  benchmark_gate/gate_passed" in first.stdout
    assert "verdict     refused, policy ci" in first.stdout
    assert "parse_rate: parse rate on held-out requests 0/" in first.stdout
    assert next((tmp_path / "store" / "benchmark_gate").glob("*/eval_gate_failed.json")).is_file()
    assert not (tmp_path / "store" / "promoted_adapter" / "champion").exists()
    assert second.stdout.count(", nothing had changed") == 3
    assert "reused      8/8 stages" in second.stdout
    assert "tokens/s" not in second.stderr
