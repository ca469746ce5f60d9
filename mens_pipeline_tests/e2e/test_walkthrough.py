"""The script of `docs/` that goes from a folder of programs to a completion and its verdict."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mens_pipeline.language import analyze
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.training.tiny_base import write_tiny_base

_SCRIPT = PROJECT_ROOT / "docs" / "walkthrough.py"
_PAGE = PROJECT_ROOT / "docs" / "walkthrough.md"


def test_the_page_shows_the_script() -> None:
    """All its steps, line by line, in at most 150 lines."""
    page, script = _PAGE.read_text(encoding="utf-8"), _SCRIPT.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    steps = script.split("\n# ")[1:]

    assert [step.partition("\n")[2].strip() for step in steps] == [block.strip() for block in blocks]
    assert len(page.splitlines()) <= 150
    assert len(script.splitlines()) <= 150


@pytest.mark.nightly
@pytest.mark.e2e
def test_a_folder_becomes_a_completion_that_parses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a base of random weights, in two steps of training: the parser alone sees to it that a program comes."""
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
