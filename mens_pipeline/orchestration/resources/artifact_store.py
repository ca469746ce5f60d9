"""The store of what the pipeline makes, as a resource."""

from pathlib import Path

import dagster as dg

from mens_pipeline.corpus.store import ArtifactStore
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
