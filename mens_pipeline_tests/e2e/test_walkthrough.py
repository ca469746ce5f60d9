"""The script of `docs/` that goes from a folder of programs to a completion and its verdict."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mens_pipeline.language import analyze
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.training.tiny_base import write_tiny_base

_SCRIPT = PROJECT_ROOT / "docs" / "walkthrough.py"


@pytest.mark.slow
def test_without_arguments_a_script_prints_its_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    for script in _SCRIPT.parent.glob("*.py"):
        monkeypatch.setattr(sys, "argv", [str(script)])
        with pytest.raises(SystemExit, match=f"`{script.name} [A-Z]"):
            runpy.run_path(str(script))


@pytest.mark.nightly
@pytest.mark.e2e
def test_a_folder_becomes_a_completion_that_parses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, folder = tmp_path / "workspace", tmp_path / "walk"
    workspace.mkdir()
    for program in sorted((PROJECT_ROOT / "data" / "golden" / "core").glob("*.vox"))[:8]:
        shutil.copy2(program, workspace)
    base = write_tiny_base(tmp_path / "base", positions=1024)
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    command = [sys.executable, "-P", str(_SCRIPT), str(workspace), str(folder), str(base), "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"^1\. 8 files, \d+ records, dropped \d+$", done.stdout, re.MULTILINE)
    assert re.search(r"^4\. 2 steps in \d+ s, loss \d", done.stdout, re.MULTILINE)
    assert re.search(r"^6\. parses: True; names and types: .+$", done.stdout, re.MULTILINE)
    written = re.search(r"^5\. .*?\n\n(.*)^6\.", done.stdout, re.MULTILINE | re.DOTALL)
    assert written is not None
    assert analyze(written[1]).module is not None
