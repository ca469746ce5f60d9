"""What tests that train share."""

import subprocess
from types import SimpleNamespace

import pytest

from mens_pipeline.jobs import local
from mens_pipeline_tests.jobs.processes import ForkedChild


@pytest.fixture
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models take many steps a second; a signal must not come too late."""
    monkeypatch.setattr(local, "_POLL_SECONDS", 0.01)


@pytest.fixture
def fork_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each job in a fork of this process."""
    monkeypatch.setattr(local, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": ForkedChild}))
