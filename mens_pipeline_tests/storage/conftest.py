"""Machines that share object storage."""

from pathlib import Path

import pytest

from mens_pipeline.storage.store import ArtifactStore


@pytest.fixture
def machines(tmp_path: Path, store_url: str) -> tuple[ArtifactStore, ArtifactStore]:
    """Return two machines with separate folders and one bucket."""
    from mens_pipeline.storage.remote import Remote  # noqa: PLC0415 - `make quick` does not install its library

    return ArtifactStore(tmp_path / "a", Remote(store_url)), ArtifactStore(tmp_path / "b", Remote(store_url))
