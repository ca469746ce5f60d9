"""The store of what the pipeline makes, as a resource."""

from pathlib import Path

import dagster as dg

from mens_pipeline.corpus.store import Artifact, ArtifactStore
from mens_pipeline.settings import load_settings


class ArtifactStoreResource(dg.ConfigurableResource[None]):
    """Where assets keep what they make.

    Attributes:
        root: The folder; empty means `MENS_STORE_ROOT`, or this repository's `data/store`.
    """

    root: str = ""

    def open(self) -> ArtifactStore:
        """The store."""
        return ArtifactStore((Path(self.root) if self.root else load_settings().store_root).resolve())

    def latest(self, kind: str) -> Artifact:
        """The artifact that the pointer `latest` names.

        Args:
            kind: What it is.

        Raises:
            dagster.Failure: There is none yet; nothing is retried.
        """
        store = self.open()
        key = store.pointed(kind, "latest")
        found = store.get(kind, key) if key else None
        if found is None:
            raise dg.Failure(f"{store.root}: there is no {kind}. Materialise it first.", allow_retries=False)
        return found
