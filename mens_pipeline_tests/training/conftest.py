"""What tests that train share."""

import pytest

from mens_pipeline.jobs import local


@pytest.fixture
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models take many steps a second; a signal must not come too late."""
    monkeypatch.setattr(local, "_POLL_SECONDS", 0.01)
