"""What tests that train share."""

import signal
from collections.abc import Iterator

import pytest

from mens_pipeline.jobs import local


@pytest.fixture
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models take many steps a second; a signal must not come too late."""
    monkeypatch.setattr(local, "_POLL_SECONDS", 0.01)


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Gives the handlers of signals back that a run in this process takes."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
