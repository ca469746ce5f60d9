"""Resources of assets: workspace, store, artifact hand-over, telemetry database and device."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import dagster as dg
from pydantic import PrivateAttr

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config, load_source_policy
from mens_pipeline.corpus.extract.batches import Pool
from mens_pipeline.corpus.extract.sources import shown_name, vox_files
from mens_pipeline.corpus.telemetry.table import TelemetryQuery
from mens_pipeline.errors import ConfigurationError, require_folder
from mens_pipeline.evaluation.results import RESULTS, EvalResults, figures_of_infill, read_results
from mens_pipeline.jobs.cluster import CorpusPools, join_cluster
from mens_pipeline.jobs.device import Device, DeviceChoice
from mens_pipeline.models.adapter import ADAPTER, CARD
from mens_pipeline.models.card import mark_card
from mens_pipeline.orchestration.metadata import FILES, fold_paths, table
from mens_pipeline.promotion.bill import format_refused_files
from mens_pipeline.promotion.history import read_history
from mens_pipeline.promotion.promote import Promotion
from mens_pipeline.promotion.receipt import PAGE
from mens_pipeline.settings import PIPELINE_CONFIG, find_device, load_settings, open_store
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactRef, ArtifactStore

_MOST_BYTES: Final = 67_108_864  # size limit of a program; a larger one counts as unreadable
_THIS_MACHINE: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class VoxWorkspace(dg.ConfigurableResource[None]):
    """The folder of Vox programs that the pipeline learns from, `root` or else `MENS_SOURCE_ROOT`."""

    root: str = ""

    def folder(self) -> Path:
        """Return the absolute path; `SourceNotFoundError` if it is missing, since that is not an empty folder."""
        folder = (Path(self.root) if self.root else load_settings().source_root).resolve()
        require_folder(folder, "Set MENS_SOURCE_ROOT to a Vox workspace.")
        return folder

    def contents(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield relative path and bytes of each program; None if it cannot be read."""
        folder = self.folder()
        for path in vox_files(folder, load_pipeline_config(PIPELINE_CONFIG).include):
            try:
                data = read_regular(path, _MOST_BYTES)
            except OSError:
                data = None
            yield shown_name(path, folder), data


class ArtifactStoreResource(dg.ConfigurableResource[None]):
    """The artifact store, in `root` or else in `MENS_STORE_ROOT`; a cache of the bucket `MENS_STORE_URL`, if any."""

    root: str = ""
    _opened: ArtifactStore | None = PrivateAttr(default=None)

    def open(self) -> ArtifactStore:
        """Return the store, opened at the first call so that a step reads its settings once."""
        if self._opened is None:
            self._opened = open_store(load_settings(), self.root)
        return self._opened

    def artifact(self, ref: ArtifactRef) -> Artifact:
        """Load an artifact by its reference; `dagster.Failure`, not retried, if it is gone or was changed."""
        store = self.open()
        found = store.get(ref.kind, ref.key)
        if found is not None and not found.is_damaged():
            return found
        what = "gone" if found is None else f"changed since it was written: {', '.join(found.find_changed())}"
        found_out = f"{store.root}: {ref.kind} {ref.key[:12]} is {what}"
        raise dg.Failure(f"{found_out}. Materialise {ref.kind} again.", allow_retries=False)


def find_pools() -> CorpusPools:
    """Return the pools that process the corpus: on this machine, or on the nodes of the Ray cluster."""
    settings = load_settings()
    if settings.launcher == "ray" and settings.ray_address:
        return join_cluster(settings.ray_address)
    return CorpusPools(Pool(settings.num_workers), BehaviourWorkers)


def find_executor(default: dg.ExecutorDefinition) -> dg.ExecutorDefinition:
    """Return the executor that MENS_EXECUTOR names, so that a launcher can place each step by its tags."""
    name = load_settings().executor
    if name is None:
        return log_end(default)
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        advice = "Install the package that provides it, or unset the variable."
        raise ConfigurationError(f"MENS_EXECUTOR={name}: {error}. {advice}") from error
    if not isinstance(found, dg.ExecutorDefinition):
        advice = "Use one such as dagster:multiprocess_executor."
        raise ConfigurationError(f"MENS_EXECUTOR={name}: a {type(found).__name__}, expected an executor. {advice}")
    return found


def log_end(executor: dg.ExecutorDefinition) -> dg.ExecutorDefinition:
    """Return an executor that logs a summary when the run ends.

    Without it `dg launch` prints nothing, because the level in dagster.yaml hides Dagster's own events.
    """

    def create(init: dg.InitExecutorContext) -> Any:
        create_own: Any = executor.executor_creation_fn
        made = create_own(init)
        execute = made.execute

        def execute_and_log(plan_context: Any, execution_plan: Any) -> Iterator[dg.DagsterEvent]:
            ended: Counter[dg.DagsterEventType] = Counter()
            for event in execute(plan_context, execution_plan):
                ended[event.event_type] += 1
                yield event
            done, failed = (ended[of] for of in (dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE))
            plan_context.log.info("run %s ended: %d steps succeeded, %d failed", plan_context.run_id, done, failed)

        made.execute = execute_and_log
        return made

    schema: Any = executor.config_schema
    return dg.ExecutorDefinition(executor.name, schema, executor.get_requirements, create, executor.description)


def linked_page(store: ArtifactStore, artifact: Artifact, name: str) -> dict[str, dg.MetadataValue[str]]:
    """Return metadata with the path of a page of an artifact, and a link if a host serves the store.

    An address of this machine is valid for one session only, so events do not keep it; see `page_links`.
    """
    path, served = artifact.path / name, load_settings().store_pages
    found: dict[str, dg.MetadataValue[str]] = {"report": dg.MetadataValue.path(path)}
    if served is not None and urlsplit(served).hostname not in _THIS_MACHINE:
        url = f"{served.rstrip('/')}/{path.relative_to(store.root).as_posix()}"
        found["report_page"] = dg.MetadataValue.md(f"[{name}]({url})")
    return found


def page_links(served: str) -> dict[dg.AssetKey, dict[str, dg.MetadataValue[str]]]:
    """Return metadata that links assets to their report pages, for the session whose web server is `served`."""
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
    """Return metadata of the champion: its figures, report, history and card."""
    champion, history = promotion.champion, read_history(store)
    event = next(event for event in reversed(history) if event.key == champion.key)  # the last may be interrupted
    notice = format_refused_files(champion, load_source_policy(PIPELINE_CONFIG))
    card = (champion.file(ADAPTER) / CARD).read_text(encoding="utf-8")
    metadata = {
        **_figures(read_results(champion.file(RESULTS))),
        "adapter_sha256": event.adapter_sha256[:12],
        "reason": event.reason,
        **linked_page(store, champion, PAGE),
        "changed": promotion.changed,
        "champion": dg.MetadataValue.path(champion.path),
        "previous": (promotion.previous or "none")[:12],
        "card": dg.MetadataValue.md(mark_card(card, notice)),
        "history": table(
            {
                "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(event.timestamp_unix)),
                "action": event.action,
                "adapter": event.adapter_sha256[:12],
            }
            for event in reversed(history)
        ),
    }
    return fold_paths({**metadata, **({"forgotten": notice} if notice else {})})


def _figures(results: EvalResults | None) -> dict[str, str]:
    if results is None:
        return {"figures": "cannot be read"}
    scores, infill = results.adapter.overall, results.infill
    return {
        "parse rate": str(scores.parse_rate),
        "resolve rate": str(scores.resolve_rate),
        "hidden tests": str(scores.test_rate),
        "exact lines": figures_of_infill(infill).get("exact lines", "not evaluated") if infill else "not evaluated",
    }


class Telemetry(dg.ConfigurableResource[None]):
    """The telemetry database; `table` overrides the one in config/pipeline.yaml.

    Only `MENS_TELEMETRY_URL` names the database, so that no configuration holds its password.
    """

    table: str = ""

    def query(self) -> TelemetryQuery | None:
        """Return the query of the rows to read; None if no database is named."""
        url = load_settings().telemetry_url
        if url is None:
            return None
        policy = load_pipeline_config(PIPELINE_CONFIG).telemetry.model_dump()
        return TelemetryQuery(url=url, **{**policy, **({"table": self.table} if self.table else {})})


class Compute(dg.ConfigurableResource[None]):
    """The device that models train and generate on: `cuda`, `cpu`, `mps`, or `best` for the best one available."""

    device: Literal["cuda", "cpu", "mps", "best"] = "best"

    def resolve(self, *, trains: bool = False) -> Device:
        """Return a device of this machine or, with `trains`, of the workers; errors as in `find_device`."""
        return find_device(DeviceChoice(self.device), load_settings(), trains=trains)


class SourceWatch(dg.ConfigurableResource[None]):
    """Limits of the sensor that watches the sources.

    A change counts after `settle_seconds` without a modified file: half a checkout must not start a run. Beyond
    `most_files` the sensor gives up: a tick must end within a minute, and 50,000 files take half a second.
    """

    settle_seconds: float = 30.0
    most_files: int = 50_000


_WHOLE_KEY: Final = re.compile("[0-9a-f]{64}")
_CUT_KEY: Final = re.compile(r"[0-9a-f]{12}\*")
_BETWEEN_PIECES: Final = re.compile("(?<=[0-9a-f]{16}) (?=[0-9a-f]{16})")
ARTIFACT: Final = "artifact"
"""Name of the metadata entry that refers to the artifact of a materialisation and to its parents."""

_ELSEWHERE: Final = "none"  # Dagster's step key of an asset that this run does not make


def hand_over(
    made: Artifact, *parents: ArtifactRef, metadata: Mapping[str, Any], version: str | None = None
) -> dg.MaterializeResult[Any]:
    """Return the result of an asset: its artifact with its parents; `version` replaces its data version."""
    return dg.MaterializeResult(
        value=made.ref(*parents),
        data_version=dg.DataVersion(version or made.data_version),
        metadata=fold_paths(metadata),
    )


class ArtifactHandover(dg.IOManager):
    """Passes artifacts between assets by a reference in the metadata of their materialisation.

    A step reads the artifact of its own run or of the run that it continues, otherwise the latest materialisation.
    """

    def handle_output(self, context: dg.OutputContext, obj: ArtifactRef) -> None:
        """Record a reference to the artifact."""
        context.add_output_metadata(reference(obj))

    def load_input(self, context: dg.InputContext) -> ArtifactRef:
        """Return the artifact of an asset; `dagster.Failure`, not retried, if it was never materialised."""
        upstream = context.upstream_output
        if upstream is not None and upstream.step_key != _ELSEWHERE:
            made = made_by(context.instance, upstream.run_id, context.asset_key)[-1:]
        else:
            latest = context.instance.get_latest_materialization_event(context.asset_key)
            made = [latest.asset_materialization] if latest and latest.asset_materialization else []
        if not made or ARTIFACT not in made[0].metadata:
            name = context.asset_key.to_user_string()
            raise dg.Failure(f"{name}: not materialised yet. Materialise it first.", allow_retries=False)
        return read_artifact(made[0])


def made_by(instance: dg.DagsterInstance, run_id: str, asset: dg.AssetKey) -> list[dg.AssetMaterialization]:
    """Return the materialisations of an asset in a run, newest last."""
    logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    return [made for entry in logs if (made := entry.asset_materialization) and made.asset_key == asset]


def read_artifact(materialization: dg.AssetMaterialization) -> ArtifactRef:
    """Read the reference to the artifact of a materialisation."""
    text = json.dumps(materialization.metadata[ARTIFACT].value)
    return ArtifactRef.from_json(json.loads(_BETWEEN_PIECES.sub("", text)))


def reference(ref: ArtifactRef) -> dict[str, dg.MetadataValue[Any]]:
    """Return metadata that refers to an artifact; keys are split so that the UI can break lines."""
    pieces = _WHOLE_KEY.sub(lambda key: " ".join(wrap(key[0], 16)), json.dumps(ref.as_json()))
    return {ARTIFACT: dg.MetadataValue.json(json.loads(pieces))}


def paths_in(materialization: dg.AssetMaterialization) -> dict[str, str]:
    """Restore the full paths that `fold_paths` shortened, as far as their keys are of artifacts on record."""
    if FILES not in materialization.metadata:
        return {}
    paths: Any = materialization.metadata[FILES].value
    refs = json.dumps(read_artifact(materialization).as_json()) if ARTIFACT in materialization.metadata else ""
    keys = {f"{key[:12]}*": key for key in _WHOLE_KEY.findall(refs)}
    return {name: _CUT_KEY.sub(lambda cut: keys.get(cut[0], cut[0]), path) for name, path in paths.items()}
