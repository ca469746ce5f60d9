"""The environment."""

from pathlib import Path

import pytest

from mens_pipeline.errors import ConfigurationError
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


def test_a_value_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variable and what to do."""
    monkeypatch.setenv("VOX_MENS_TRAIN_JSONL_STRICT", "perhaps")

    with pytest.raises(ConfigurationError, match=r"VOX_MENS_TRAIN_JSONL_STRICT: .*Correct or unset"):
        load_settings()
