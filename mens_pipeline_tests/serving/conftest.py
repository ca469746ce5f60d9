"""Models to serve, and a server that many tests ask."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mens_pipeline.inference.generation import Syntax
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline_tests.serving.running import CLIENTS, TOKEN, Running, running
from mens_pipeline_tests.serving.talkative import write_endless, write_talkative, write_taught_run


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    CLIENTS.close()


@pytest.fixture(scope="session")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A merged model of two layers that does not repeat itself."""
    return write_talkative(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def endless_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_endless(tmp_path_factory.mktemp("endless") / "endless")


@pytest.fixture(scope="session")
def server(merged: Path) -> Iterator[Running]:
    """A server of the tiny model that wants a token."""
    with running(merged, ServerLimits(4, 20_000, 60.0, 400), TOKEN) as server:
        yield server


@pytest.fixture(scope="session")
def busy(endless_model: Path) -> Iterator[Running]:
    """A server without a token, of answers that only time ends; it writes one at once, and lets four wait."""
    with running(endless_model, ServerLimits(1, 20_000, 2.0, 900_000)) as server:
        yield server


@pytest.fixture(scope="session")
def taught_run(merged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was shown holes in programs, and never evaluated; its weights know nothing of Vox."""
    return write_taught_run(tmp_path_factory.mktemp("taught"), merged)


@pytest.fixture(scope="session")
def taught(taught_run: Path) -> Iterator[Running]:
    """A server of that run, which shows unknown names too: its model knows no others."""
    with running(taught_run, ServerLimits(2, 40_000, 60.0, 400), syntax=Syntax.FALLBACK, show_all=True) as server:
        yield server
