"""`mens run` from the seed data to a verdict, with a base small enough for nightly tests."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mens_pipeline_tests.e2e.whole_graph import mens, write_config
from mens_pipeline_tests.training.tiny_base import write_tiny_base

if TYPE_CHECKING:
    from subprocess import CompletedProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, seed_run: Path) -> Path:
    """A machine: base model, configuration, home, cache, and a store with a train set."""
    folder = tmp_path_factory.mktemp("machine")
    shutil.copytree(seed_run / "store", folder / "store")
    write_tiny_base(folder / "base", positions=1024)
    write_config(folder, policy={"first_heldout_tasks": 10})
    return folder


def _mens(folder: Path, *arguments: str) -> "CompletedProcess[str]":
    return mens(folder, folder / "base", folder / "config", *arguments)


@pytest.fixture(scope="module")
def ran(folder: Path) -> "CompletedProcess[str]":
    """The result of the first run of the whole graph there."""
    return _mens(folder, "run", "--preset", "tiny")


@pytest.mark.seed_row(77)
def test_random_weights_are_trained_evaluated_and_refused(folder: Path, ran: "CompletedProcess[str]") -> None:
    assert ran.returncode == 1, ran.stderr[-3000:]
    assert "warning  benchmark_gate/gate_passed" in ran.stdout
    assert "verdict     refused, policy ci" in ran.stdout
    assert "parse_rate: parse rate on held-out prompts 0/" in ran.stdout
    assert next((folder / "store" / "benchmark_gate").glob("*/eval_gate_failed.json")).is_file()
    assert not (folder / "store" / "promoted_adapter" / "champion").exists()


@pytest.mark.nightly
@pytest.mark.usefixtures("ran")
def test_a_second_run_reuses_all_stages(folder: Path) -> None:
    second = _mens(folder, "run", "--preset", "tiny")

    assert second.returncode == 1, second.stderr[-3000:]
    assert second.stdout.count(", reused\n") == 3
    assert "reused      9/9 stages" in second.stdout
    assert "tokens/s" not in second.stderr
