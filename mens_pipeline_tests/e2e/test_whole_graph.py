"""`mens run` from the seed data to a verdict, with a base model small enough for every night's tests."""

from pathlib import Path

import pytest

from mens_pipeline_tests.e2e.whole_graph import mens, write_config
from mens_pipeline_tests.training.tiny_base import write_tiny_base

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.seed_row(77)
def test_random_weights_are_trained_judged_and_refused(tmp_path: Path) -> None:
    """Every stage is real; the gate says no, nothing is promoted, and the second time nothing is made again."""
    base, config = write_tiny_base(tmp_path / "base"), write_config(tmp_path)
    first, second = (mens(tmp_path, base, config, "run", "--preset", "tiny") for _ in range(2))

    assert first.returncode == second.returncode == 1, first.stderr[-3000:]
    assert "warning  benchmark_gate/gate_passed" in first.stdout
    assert "verdict     refused, policy ci" in first.stdout
    assert "parse_rate: parse rate on held-out prompts 0/" in first.stdout
    assert next((tmp_path / "store" / "benchmark_gate").glob("*/eval_gate_failed.json")).is_file()
    assert not (tmp_path / "store" / "promoted_adapter" / "champion").exists()
    assert second.stdout.count(", nothing had changed") == 3
    assert "reused      9/9 stages" in second.stdout
    assert "tokens/s" not in second.stderr
