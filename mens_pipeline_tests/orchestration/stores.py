"""Stores with one artifact in them, to see a check judge it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mens_pipeline.corpus.store import Artifact, ArtifactStore
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource


def store_with(
    root: Path, kind: str, manifest: dict[str, Any], write: Callable[[Path], object] = lambda _folder: None
) -> ArtifactStoreResource:
    """A store whose latest artifact of a kind is made up.

    Args:
        root: Where it lies.
        kind: What the artifact is.
        manifest: What its manifest says besides.
        write: Fills its folder.
    """
    artifact_in(root, kind, manifest, write)
    return ArtifactStoreResource(root=str(root))


def artifact_in(
    root: Path, kind: str, manifest: dict[str, Any], write: Callable[[Path], object] = lambda _folder: None
) -> Artifact:
    """A made-up artifact; `latest` names it."""
    store = ArtifactStore(root)

    def fill(folder: Path) -> dict[str, Any]:
        write(folder)
        return manifest

    return store.built(kind, {}, fill)[0]
