"""Ratios of the bench are recorded, and compared with earlier ones."""

from pathlib import Path

import pytest

from mens_pipeline_tests.bench import ratios


def test_names_ratios_that_fell_by_more_than_a_tenth() -> None:
    """A tenth less is chance; ratios that are new or were not measured do not count."""
    recorded = {"slower": 5.0, "as before": 5.0, "elsewhere": 1.0}

    assert ratios.fallen({"slower": 4.4, "as before": 4.6, "new": 1.0}, recorded) == ["slower"]


def test_a_fall_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ratios, "_RECORDED", tmp_path / "recorded.json")
    monkeypatch.setattr("sys.argv", ["ratios", "--record"])
    ratios.note("training", 5.0)
    ratios.main()
    monkeypatch.setattr("sys.argv", ["ratios"])
    ratios.note("training", 3.0)

    with pytest.raises(SystemExit, match="1"):
        ratios.main()
    assert "5.00    3.00  fell by more than a tenth" in capsys.readouterr().out
    assert ratios.read(tmp_path / "recorded.json") == {"training": 5.0}
