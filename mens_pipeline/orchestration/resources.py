"""Resources: workspace, store, telemetry database and device."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import dagster as dg

from mens_pipeline.configured import open_store
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.extract.sources import shown_name, vox_files
from mens_pipeline.corpus.telemetry.table import TelemetryQuery
from mens_pipeline.errors import SourceNotFoundError
from mens_pipeline.jobs.device import Device, DeviceChoice, resolve_device
from mens_pipeline.settings import PIPELINE_CONFIG, load_settings
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.store import Artifact, ArtifactRef, ArtifactStore

_MOST_BYTES: Final = 67_108_864
"""Of a program that is looked at; a larger one counts as one that cannot be read."""


class VoxWorkspace(dg.ConfigurableResource[None]):
    """The folder of Vox programs that the pipeline learns from.

    Attributes:
        root: The folder; empty means `MENS_SOURCE_ROOT`, or this repository's `data/`.
    """

    root: str = ""

    def folder(self) -> Path:
        """Return the folder as an absolute path.

        Raises:
            SourceNotFoundError: It is not there; a missing workspace is never an empty one.
        """
        folder = (Path(self.root) if self.root else load_settings().source_root).resolve()
        if not folder.is_dir():
            raise SourceNotFoundError(f"{folder}: no such folder. Set MENS_SOURCE_ROOT to a Vox workspace.")
        return folder

    def contents(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield relative path and bytes of each program; None for one that cannot be read."""
        folder = self.folder()
        for path in vox_files(folder):
            try:
                data = read_regular(path, _MOST_BYTES)
            except OSError:
                data = None
            yield shown_name(path, folder), data


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


class Telemetry(dg.ConfigurableResource[None]):
    """Telemetry database of accepted answers, as a resource.

    The database is named by `MENS_TELEMETRY_URL` alone, so that its password stands in no configuration.

    Attributes:
        table: The table; empty means the one that config/pipeline.yaml names.
    """

    table: str = ""

    def query(self) -> TelemetryQuery | None:
        """Return the rows to read; None when no database is named.

        Raises:
            ConfigurationError: `config/pipeline.yaml` does not hold together.
        """
        url = load_settings().telemetry_url
        if url is None:
            return None
        policy = load_pipeline_config(PIPELINE_CONFIG).telemetry.model_dump()
        return TelemetryQuery(url=url, **{**policy, **({"table": self.table} if self.table else {})})


class Compute(dg.ConfigurableResource[None]):
    """The device of training.

    Attributes:
        device: `cuda`, `cpu`, `mps`, or `best` for what there is; an absent one is a refusal.
    """

    device: Literal["cuda", "cpu", "mps", "best"] = "best"

    def resolve(self) -> Device:
        """Return the device that models train on.

        Raises:
            RefusedError: It is not there, or VOX_BACKEND forbids it.
        """
        return resolve_device(DeviceChoice(self.device), force_cpu=load_settings().backend == "cpu")


class SourceWatch(dg.ConfigurableResource[None]):
    """When a change of the workspace is taken for one.

    Attributes:
        settle_seconds: How long no file may have been touched, so that half a checkout starts nothing.
        most_files: Files from which on a sensor gives up: a tick must end within a minute; 50,000 take half a second.
    """

    settle_seconds: float = 30.0
    most_files: int = 50_000
