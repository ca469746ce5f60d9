"""What tests that train share."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mens_pipeline_tests.training.tiny_base import write_tiny_base


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model of two layers."""
    return write_tiny_base(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Gives the handlers of signals back that a run in this process takes."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
