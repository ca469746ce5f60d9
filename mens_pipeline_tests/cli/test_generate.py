"""`mens generate`: one program, checked."""

from pathlib import Path

import pytest

from mens_pipeline.language import analyze
from mens_pipeline_tests.cli.invoking import invoke, refusal


@pytest.mark.slow
@pytest.mark.usefixtures("jobs_here")
def test_a_prompt_becomes_a_program_or_nothing(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    asked = ("generate", "Write a function f.", "--run-dir", trained, "--device", "cpu")
    written = invoke(*asked, "--max-tokens", "32", "-o", tmp_path / "f.vox")
    none = invoke(*asked, "--max-tokens", "1", "-o", tmp_path / "none.vox")
    shown = invoke(*asked, "--max-tokens", "1", "--no-validate")

    assert written.exit_code == 0, written.stderr
    assert analyze((tmp_path / "f.vox").read_text()).module is not None
    assert "-> parses" in written.stderr
    assert written.stdout == ""
    assert (none.exit_code, shown.exit_code) == (1, 0)
    assert "-> does not parse: " in none.stderr
    assert not (tmp_path / "none.vox").exists()


def test_without_a_champion_a_run_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))

    assert "no adapter is promoted. Name a run with --run-dir, such as " in refusal(invoke("generate", "Write f."))
    assert invoke("generate", "Write f.", "--max-tokens", "8193").exit_code == 2  # more than decoding allows
