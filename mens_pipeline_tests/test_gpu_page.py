"""The page about a GPU: its parts, and the part that the tests write."""

import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.bench.page import MACHINE, TESTS, keep, outcome_table, write_part


def test_replaces_a_part_and_keeps_the_others(tmp_path: Path) -> None:
    page = tmp_path / "build" / "page.md"
    write_part(page, "Training", "slow\n")
    write_part(page, TESTS, outcome_table([("test_loss", "passed", 1.25, "loss 2.5")]))
    write_part(page, "Training", "fast")
    text = page.read_text()

    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# What a GPU said",
        "## The machine",
        "## Training",
        f"## {TESTS}",
    ]
    assert "slow" not in text
    assert "fast" in text
    assert "| `test_loss` | passed | 1.2 | loss 2.5 |" in text
    assert "torch " in text
    assert "flash_linear_attention: " in text
    assert str(Path.home()) not in text


def test_a_failed_module_leaves_its_output(tmp_path: Path) -> None:
    """Each line is on the page at once, so that a killed run leaves it."""
    page, go = tmp_path / "page.md", tmp_path / "go"
    write_part(page, "Other", "kept")
    script = (
        "import pathlib, sys, time\n"
        f"print('at {PROJECT_ROOT}', flush=True)\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
        "sys.exit('the reason')\n"
    )
    codes: list[int] = []
    keeper = Thread(target=lambda: codes.append(keep(page, "Part", [sys.executable, "-c", script])))
    keeper.start()
    during = ""
    while "at ." not in during:
        assert keeper.is_alive()
        during = page.read_text()
    go.touch()
    keeper.join()

    assert "```text\nat .\nnot ended\n```" in during
    assert "```text\nat .\nthe reason\nended with exit code 1\n```" in page.read_text()
    assert codes == [1]
    assert "## Other\n\nkept" in page.read_text()


@pytest.mark.slow
def test_the_tests_of_a_gpu_write_their_part(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_part(page, MACHINE, "what is known of it")
    (tmp_path / "test_it.py").write_text(
        "import pathlib, pytest\n\n@pytest.mark.gpu\ndef test_figure(record_property):\n"
        "    record_property('peak_mb', 12)\n\n@pytest.mark.gpu\ndef test_killed_here():\n"
        f"    assert 'test_figure` | passed' in pathlib.Path({str(page)!r}).read_text()\n"
    )
    plugins = ["-p", "mens_pipeline_tests.gpu_page", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", *plugins]
    done = subprocess.run(
        [*command, "-c", str(PROJECT_ROOT / "pyproject.toml"), f"--gpu-page={page}", str(tmp_path / "test_it.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT_ROOT,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_figure` | passed |" in page.read_text()
    assert "peak_mb 12" in page.read_text()
    assert f"written to {page}" in done.stdout
