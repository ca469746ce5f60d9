"""`mens run`: the whole graph without a server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def _run(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DAGSTER_HOME": str(home), "MENS_STORE_ROOT": f"{home}-store"}
    command = [sys.executable, "-m", "mens_pipeline.cli", "run", "--no-train", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Dagster home of the test's own."""
    return tmp_path / "home"


def test_seed_data_passes_and_says_how_much(home: Path) -> None:
    """The data of this repository is accepted whole; progress goes to stderr, the result to stdout."""
    result = _run(home)

    assert result.returncode == 0, result.stderr
    assert "passed   vox_sources/source_parse_rate" in result.stdout
    assert "different pairs" in result.stdout
    assert "start: vox_sources" in result.stderr
    assert "done: extracted_corpus" in result.stderr
    assert (home / "dagster.yaml").is_symlink()


def test_a_broken_workspace_is_refused(home: Path, tmp_path: Path) -> None:
    """Too many rejected files: exit code 1, and the run is recorded."""
    source = tmp_path / "workspace"
    source.mkdir()
    (source / "bad.vox").write_text("fn f(")
    result = _run(home, "--source-root", source, "--json")
    outcome = json.loads(result.stdout)

    assert result.returncode == 1
    assert outcome["success"] is False
    assert outcome["checks"][0]["figures"]["accepted"] == "0/1 (0.0 %)"


def test_an_empty_workspace_is_refused(home: Path, tmp_path: Path) -> None:
    """No files is no success."""
    result = _run(home, "--source-root", tmp_path)

    assert result.returncode == 1
    assert "accepted: 0/0" in result.stdout


@pytest.mark.parametrize("make_home", [Path.mkdir, Path.touch], ids=["bad config", "file in the way"])
def test_a_home_that_cannot_work_is_misuse(home: Path, make_home: object) -> None:
    """A wrong dagster.yaml, or a file where the folder should be: exit code 2 and one message."""
    if make_home is Path.mkdir:
        home.mkdir()
        (home / "dagster.yaml").write_text("storage: {nonsense: {}}\n")
    else:
        home.touch()
    result = _run(home)

    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert str(home) in result.stderr


def test_a_missing_workspace_is_misuse(home: Path, tmp_path: Path) -> None:
    """Exit code 2 and advice."""
    result = _run(home, "--source-root", tmp_path / "nowhere")

    assert result.returncode == 2
    assert "no such folder. Name a Vox workspace with --source-root" in result.stderr
