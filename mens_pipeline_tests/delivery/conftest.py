"""A Hub, and a champion that tests send to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.delivery.hub_server import Hub, serving


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def promoted(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ArtifactStore]:
    """A champion, and the run that it came from."""
    from mens_pipeline_tests.delivery.delivered import promoted_run  # noqa: PLC0415 - most tests need none of it

    return promoted_run(trained, tmp_path_factory.mktemp("promoted"))
