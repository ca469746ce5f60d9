"""Fixtures of tests that train."""

import subprocess
from types import SimpleNamespace

import pytest

from mens_pipeline.jobs import local
from mens_pipeline_tests.jobs.processes import ForkedChild


@pytest.fixture
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll jobs often: small models make many steps a second."""
    monkeypatch.setattr(local, "_POLL_SECONDS", 0.01)


@pytest.fixture
def fork_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each job in a fork of this process."""
    monkeypatch.setattr(local, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": ForkedChild}))
