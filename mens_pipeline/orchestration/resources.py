"""Resources: workspace, store, hand-over of artifacts between assets, telemetry database and device."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import dagster as dg
from pydantic import PrivateAttr

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.extract.batches import Pool
from mens_pipeline.corpus.extract.sources import shown_name, vox_files
from mens_pipeline.corpus.telemetry.table import TelemetryQuery
from mens_pipeline.errors import SourceNotFoundError
from mens_pipeline.jobs.cluster import CorpusPools, join_cluster
from mens_pipeline.jobs.device import Device, DeviceChoice, resolve_device
from mens_pipeline.models.adapter import ADAPTER, CARD
from mens_pipeline.orchestration.metadata import FILES, fold_paths, table
from mens_pipeline.promotion.history import read_history
from mens_pipeline.promotion.promote import Promotion
from mens_pipeline.promotion.receipt import PAGE
from mens_pipeline.settings import PIPELINE_CONFIG, load_settings, open_store
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactRef, ArtifactStore

_MOST_BYTES: Final = 67_108_864
"""Of a program that is looked at; a larger one counts as one that cannot be read."""
_THIS_MACHINE: Final = frozenset({"127.0.0.1", "localhost", "::1"})


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
    _opened: ArtifactStore | None = PrivateAttr(default=None)

    def open(self) -> ArtifactStore:
        """Return the store, opened at the first call: a step reads its settings once."""
        if self._opened is None:
            self._opened = open_store(load_settings(), self.root)
        return self._opened

    def artifact(self, ref: ArtifactRef) -> Artifact:
        """Load the artifact that was handed over, and check that it is unchanged.

        Raises:
            dagster.Failure: It is gone, or was changed since; nothing is retried.
        """
        store = self.open()
        found = store.get(ref.kind, ref.key)
        if found is not None and not found.is_damaged():
            return found
        what = "gone" if found is None else f"changed since it was written: {', '.join(found.find_changed())}"
        found_out = f"{store.root}: {ref.kind} {ref.key[:12]} is {what}"
        raise dg.Failure(f"{found_out}. Materialise {ref.kind} again.", allow_retries=False)


def find_pools() -> CorpusPools:
    """Return where the corpus is worked on: on this machine, or on the nodes of the Ray cluster that is named.

    Raises:
        ConfigurationError: The cluster cannot be joined.
    """
    settings = load_settings()
    if settings.launcher == "ray" and settings.ray_address:
        return join_cluster(settings.ray_address)
    return CorpusPools(Pool(settings.num_workers), BehaviourWorkers)


def linked_page(store: ArtifactStore, artifact: Artifact, name: str) -> dict[str, dg.MetadataValue[str]]:
    """Return metadata that leads to a page of an artifact: where it lies, and a link where a host serves the store.

    An address of this machine ends with the session that it was made in, so no event keeps it: `page_links`.
    """
    path, served = artifact.path / name, load_settings().store_pages
    found: dict[str, dg.MetadataValue[str]] = {"report": dg.MetadataValue.path(path)}
    if served is not None and urlsplit(served).hostname not in _THIS_MACHINE:
        url = f"{served.rstrip('/')}/{path.relative_to(store.root).as_posix()}"
        found["report_page"] = dg.MetadataValue.md(f"[{name}]({url})")
    return found


def page_links(served: str) -> dict[dg.AssetKey, dict[str, dg.MetadataValue[str]]]:
    """Return metadata of assets that leads to the lists of their pages; each session that shows them has its own.

    Args:
        served: Where a web server shows the store.
    """
    kinds = {
        "benchmark_gate": Kind.BENCHMARK_GATE,
        "recipe_scores": Kind.BENCHMARK_GATE,
        "promoted_adapter": Kind.PROMOTED_ADAPTER,
    }
    return {
        dg.AssetKey(asset): {"report_pages": dg.MetadataValue.url(f"{served.rstrip('/')}/{kind}/")}
        for asset, kind in kinds.items()
    }


def champion_metadata(promotion: Promotion, store: ArtifactStore) -> dict[str, Any]:
    """Return card, report and history of the champion."""
    champion = promotion.champion
    metadata = {
        **linked_page(store, champion, PAGE),
        "changed": promotion.changed,
        "champion": dg.MetadataValue.path(champion.path),
        "previous": promotion.previous or "none",
        "card": dg.MetadataValue.md((champion.file(ADAPTER) / CARD).read_text(encoding="utf-8")),
        "history": table(
            {
                "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(event.timestamp_unix)),
                "action": event.action,
                "champion": event.key[:12],
                "reason": event.reason,
            }
            for event in reversed(read_history(store))
        ),
    }
    return fold_paths(metadata)


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


_WHOLE_KEY: Final = re.compile("[0-9a-f]{64}")
_CUT_KEY: Final = re.compile(r"[0-9a-f]{12}\*")
_BETWEEN_PIECES: Final = re.compile("(?<=[0-9a-f]{16}) (?=[0-9a-f]{16})")
ARTIFACT: Final = "artifact"
"""The metadata of a materialisation that names its artifact, and those that it rests on."""


_ELSEWHERE: Final = "none"
"""What Dagster calls the step of an asset that is not of this run."""


def hand_over(
    made: Artifact, *parents: ArtifactRef, metadata: Mapping[str, Any], version: str | None = None
) -> dg.MaterializeResult[Any]:
    """Return what an asset made, with the artifacts that it rests on; `version` is that of its data unless given."""
    return dg.MaterializeResult(
        value=made.ref(*parents),
        data_version=dg.DataVersion(version or made.data_version),
        metadata=fold_paths(metadata),
    )


class ArtifactHandover(dg.IOManager):
    """Writes the reference to an artifact beside its materialisation, and reads it there.

    Within a run, and one that goes on from it, a step gets what that run made; else what was materialised last.
    """

    def handle_output(self, context: dg.OutputContext, obj: ArtifactRef) -> None:
        """Note what was made."""
        context.add_output_metadata(reference(obj))

    def load_input(self, context: dg.InputContext) -> ArtifactRef:
        """Return what an asset made.

        Raises:
            dagster.Failure: It was not materialised yet; nothing is retried.
        """
        upstream = context.upstream_output
        if upstream is not None and upstream.step_key != _ELSEWHERE:
            made = made_by(context.instance, upstream.run_id, context.asset_key)[-1:]
        else:
            latest = context.instance.get_latest_materialization_event(context.asset_key)
            made = [latest.asset_materialization] if latest and latest.asset_materialization else []
        if not made or ARTIFACT not in made[0].metadata:
            name = context.asset_key.to_user_string()
            raise dg.Failure(f"there is no {name}. Materialise it first.", allow_retries=False)
        return artifact_of(made[0])


def made_by(instance: dg.DagsterInstance, run_id: str, asset: dg.AssetKey) -> list[dg.AssetMaterialization]:
    """Return what a run made of an asset, the newest last."""
    logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    return [made for entry in logs if (made := entry.asset_materialization) and made.asset_key == asset]


def artifact_of(materialization: dg.AssetMaterialization) -> ArtifactRef:
    """Return the artifact that a materialization names."""
    text = json.dumps(materialization.metadata[ARTIFACT].value)
    return ArtifactRef.from_json(json.loads(_BETWEEN_PIECES.sub("", text)))


def reference(ref: ArtifactRef) -> dict[str, dg.MetadataValue[Any]]:
    """Return the metadata by which an artifact is handed on, its keys in pieces between which the UI breaks lines."""
    pieces = _WHOLE_KEY.sub(lambda key: " ".join(wrap(key[0], 16)), json.dumps(ref.as_json()))
    return {ARTIFACT: dg.MetadataValue.json(json.loads(pieces))}


def paths_in(materialization: dg.AssetMaterialization) -> dict[str, str]:
    """Return the paths that `fold_paths` cut, whole."""
    if FILES not in materialization.metadata:
        return {}
    paths: Any = materialization.metadata[FILES].value
    refs = json.dumps(artifact_of(materialization).as_json()) if ARTIFACT in materialization.metadata else ""
    keys = {f"{key[:12]}*": key for key in _WHOLE_KEY.findall(refs)}
    return {name: _CUT_KEY.sub(lambda cut: keys[cut[0]], path) for name, path in paths.items()}
