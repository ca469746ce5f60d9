"""The page about a GPU: its parts, and that the tests write theirs by themselves."""

import subprocess
import sys
from pathlib import Path

import pytest

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.bench.page import TESTS, outcome_table, write_part


def test_a_part_is_written_anew_and_others_stay(tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_the_tests_of_a_card_write_their_part(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.gpu\ndef test_figure(record_property):\n    record_property('peak_mb', 12)\n"
    )
    page = tmp_path / "page.md"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "gpu",
        "-q",
        "-p",
        "mens_pipeline_tests.gpu_page",
        "-p",
        "no:cacheprovider",
    ]
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
