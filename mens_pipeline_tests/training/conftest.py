"""What tests that train share."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Gives the handlers of signals back that a run in this process takes."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
