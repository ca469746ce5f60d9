"""The store of what the pipeline makes, as a resource."""

import dagster as dg

from mens_pipeline.configured import open_store
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.store import Artifact, ArtifactRef, ArtifactStore


class ArtifactStoreResource(dg.ConfigurableResource[None]):
    """Store of the artifacts, as a resource.

    Attributes:
        root: The folder; empty means `MENS_STORE_ROOT`, or this repository's `data/store`. Behind it
            stands what `MENS_STORE_URL` names, if anything.
    """

    root: str = ""

    def open(self) -> ArtifactStore:
        """Open the store."""
        return open_store(load_settings(), self.root)

    def page(self, artifact: Artifact, name: str) -> dict[str, dg.MetadataValue[str]]:
        """Return metadata that leads to a page of an artifact."""
        return linked_page(self.open(), artifact, name)

    def artifact(self, ref: ArtifactRef) -> Artifact:
        """Load the artifact that was handed over, as it was written.

        Raises:
            dagster.Failure: It is gone, or was changed since; nothing is retried.
        """
        store = self.open()
        found = store.get(ref.kind, ref.key)
        if found is not None and not found.is_damaged():
            return found
        what = "gone" if found is None else f"changed since it was written: {', '.join(found.changed())}"
        found_out = f"{store.root}: {ref.kind} {ref.key[:12]} is {what}"
        raise dg.Failure(f"{found_out}. Materialise {ref.kind} again.", allow_retries=False)


def linked_page(store: ArtifactStore, artifact: Artifact, name: str) -> dict[str, dg.MetadataValue[str]]:
    """Return metadata that leads to a page of an artifact: where it lies, and a link where the store is served."""
    path, served = artifact.path / name, load_settings().store_pages
    found: dict[str, dg.MetadataValue[str]] = {"report": dg.MetadataValue.path(path)}
    if served is not None:
        found["report_page"] = dg.MetadataValue.url(f"{served.rstrip('/')}/{path.relative_to(store.root).as_posix()}")
    return found
