"""Commands started in a hostile folder must not import its modules."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.protocol import ExitCode
from mens_pipeline.jobs.run import KINDS
from mens_pipeline.settings import PROJECT_ROOT


@pytest.mark.slow
@pytest.mark.threat("W10")
@pytest.mark.parametrize("kind", KINDS)
def test_no_child_runs_the_python_files_of_a_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    executed = tmp_path / "executed"
    for name in ("pydantic", "dagster_pipes", "torch", "json", "mens_pipeline"):
        (tmp_path / f"{name}.py").write_text(f"open({str(executed)!r}, 'w')\nraise ImportError('of the workspace')")
    monkeypatch.chdir(tmp_path)
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"kind": kind}))

    assert run_job(job, grace_seconds=5) == ExitCode.CRASHED
    assert not executed.exists()
    assert "not a valid job" in (tmp_path / "child.log").read_text()


@pytest.mark.slow
@pytest.mark.threat("W10")
def test_no_pool_runs_the_python_files_of_a_workspace(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for number in range(2):
        (workspace / f"large_{number}.vox").write_text(
            "fn a() to int { return 1 }\n" + "// filler of a line\n" * 30_000
        )
    for name in ("multiprocessing", "pickle", "threading", "socket", "runpy"):
        (workspace / f"{name}.py").write_text("open('EXECUTED', 'w')\nraise ImportError('of the workspace')")
    # Like the command that pip installs: Python searches the folder of the script first, not the current one.
    start = tmp_path / "bin" / "mens"
    start.parent.mkdir()
    start.write_text("from mens_pipeline.cli.main import main\nif __name__ == '__main__':\n    main()\n")
    command = [sys.executable, str(start), "corpus", "extract", ".", "-o", str(tmp_path / "rows.jsonl")]
    environment = {**os.environ, "MENS_NUM_WORKERS": "2", "PYTHONPATH": str(PROJECT_ROOT)}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True, check=False)

    assert not (workspace / "EXECUTED").exists()
    assert done.returncode == 0, done.stderr
