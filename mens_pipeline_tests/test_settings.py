"""The environment."""

from pathlib import Path

import pytest

from mens_pipeline.settings import PROJECT_ROOT, load_settings


def test_defaults_lie_in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any variable the seed data is the workspace."""
    monkeypatch.delenv("MENS_SOURCE_ROOT", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    settings = load_settings()

    assert settings.source_root == PROJECT_ROOT / "data"
    assert settings.dagster_home == PROJECT_ROOT / "data" / "dagster"


def test_environment_beats_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`MENS_SOURCE_ROOT` points anywhere."""
    monkeypatch.setenv("MENS_SOURCE_ROOT", str(tmp_path))

    assert load_settings().source_root == tmp_path
