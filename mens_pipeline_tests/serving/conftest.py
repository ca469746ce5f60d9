"""Models to serve, and servers that many tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mens_pipeline.inference.generation import Syntax
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline_tests.serving.running import CLIENTS, TOKEN, Running, running
from mens_pipeline_tests.serving.talkative import write_endless, write_infill_run, write_talkative


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
    """A server of the tiny model that requires a token."""
    with running(merged, ServerLimits(4, 20_000, 60.0, 400), TOKEN) as server:
        yield server


@pytest.fixture(scope="session")
def busy(endless_model: Path) -> Iterator[Running]:
    """A server without a token whose completions end only at the timeout: one runs, four may wait."""
    with running(endless_model, ServerLimits(1, 20_000, 2.0, 900_000)) as server:
        yield server


@pytest.fixture(scope="session")
def infill_run(merged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run trained for infill and never evaluated; its weights are random."""
    return write_infill_run(tmp_path_factory.mktemp("infill"), merged)


@pytest.fixture(scope="session")
def infill(infill_run: Path) -> Iterator[Running]:
    """A server of that run, which also sends unknown names: its model writes no others."""
    with running(infill_run, ServerLimits(2, 40_000, 60.0, 400), syntax=Syntax.FALLBACK, show_all=True) as server:
        yield server
