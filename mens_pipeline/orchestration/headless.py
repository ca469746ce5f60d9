"""The whole graph in one process, without a server, in the instance that the UI shows."""

import fcntl
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

import dagster as dg
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME
from dagster._core.events import RunFailureReason
from dagster._core.storage.tags import CODE_LOCATION_TAG, REPOSITORY_LABEL_TAG

from mens_pipeline.orchestration.failures import reasons_of
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.pipes import HEADLESS, JOB_TAG
from mens_pipeline.orchestration.progress import PROGRESS_LOGGER
from mens_pipeline.orchestration.resources.workspace import VoxWorkspace
from mens_pipeline.settings import Settings
from mens_pipeline.storage.draft import locked

_FOLDER: Final = "headless"
_LOCATION: Final = "mens_pipeline"
"""As workspace.yaml calls the code location."""

_SHOWN: Final = {
    REPOSITORY_LABEL_TAG: f"{SINGLETON_REPOSITORY_NAME}@{_LOCATION}",
    CODE_LOCATION_TAG: _LOCATION,
    JOB_TAG: HEADLESS,
}
"""Tags by which the UI shows a run beside those that it started itself: on its first page, and with its job."""


@contextmanager
def at_work(home: Path, run_id: str) -> Iterator[None]:
    """Hold the lock of a run for as long as the block runs."""
    path = home / _FOLDER / run_id
    path.parent.mkdir(exist_ok=True)
    with locked(path):
        yield
        path.unlink()


def fail_abandoned(home: Path, instance: dg.DagsterInstance) -> None:
    """Report the headless runs failed whose process was killed: no daemon watches them."""
    for path in sorted((home / _FOLDER).glob("*")):
        run = instance.get_run_by_id(path.name)
        if run is None or not _is_free(path):
            continue
        if not run.is_finished:
            instance.report_run_failed(run, "its process is gone: it was killed, or the machine went down")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            logging.getLogger(PROGRESS_LOGGER).info("run %s was killed; it is reported as failed", run.run_id)
        path.unlink(missing_ok=True)


def _is_free(path: Path) -> bool:
    """Return whether nobody holds the lock any more."""
    with path.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """One asset check of a run.

    Attributes:
        blocks: Whether a failure stops what comes after it.
        figures: Its numbers and texts, in order; tables are left to the UI.
    """

    name: str
    passed: bool
    blocks: bool
    figures: dict[str, str]


@dataclass(frozen=True, slots=True)
class GraphOutcome:
    """Result of a run of the whole graph.

    Attributes:
        success: No step failed and no blocking check refused.
        is_interrupted: Somebody stopped it; it is recorded as canceled.
        figures: Asset -> its metadata, plain values only.
    """

    run_id: str
    success: bool
    is_interrupted: bool
    checks: tuple[CheckOutcome, ...]
    figures: dict[str, dict[str, Any]]
    seconds: float

    @property
    def is_promoted(self) -> bool:
        """Whether an adapter is in use that this run stands behind."""
        return self.success and "promoted_adapter" in self.figures


def run_graph(
    definitions: dg.Definitions,
    settings: Settings,
    job_name: str,
    configs: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> GraphOutcome:
    """Materialise the assets of a job and run their checks; progress goes to the logger `mens_pipeline.progress`.

    Raises:
        ConfigurationError: The Dagster instance cannot be opened.
    """
    started, run_id = perf_counter(), str(uuid4())
    job = definitions.resolve_job_def(job_name)
    ops = {asset: {"config": dict(config)} for asset, config in configs.items()}
    home = settings.dagster_home
    with open_instance(home, is_headless=True) as instance, at_work(home, run_id):
        fail_abandoned(home, instance)
        result = job.execute_in_process(
            instance=instance,
            run_id=run_id,
            tags=_SHOWN,
            resources={"workspace": VoxWorkspace(root=str(settings.source_root))},
            run_config={"loggers": {"progress": {}}, "ops": ops},
            raise_on_error=False,
        )
        is_interrupted = _is_interrupted(result)
        if is_interrupted:
            instance.report_run_canceled(result.dagster_run, "It was interrupted where it was started.")
        elif not result.success:  # the sensors of alerts see runs of a server alone
            reasons = "; ".join(reasons_of(result.get_step_failure_events()))
            logging.getLogger(PROGRESS_LOGGER).error("run %s of %s failed: %s", run_id, job_name, reasons)
        checks = tuple(_outcome(evaluation) for evaluation in result.get_asset_check_evaluations())
        figures = {
            event.asset_key.to_user_string(): _plain(event.step_materialization_data.materialization.metadata)
            for event in result.filter_events(lambda event: event.is_step_materialization)
            if event.asset_key is not None
        }
    return GraphOutcome(run_id, result.success, is_interrupted, checks, figures, perf_counter() - started)


def _is_interrupted(result: dg.ExecuteInProcessResult) -> bool:
    """Return whether SIGINT ended it, within a step or between two."""
    if result.success:
        return False
    reason = result.get_run_failure_event().job_failure_data.failure_reason
    return reason is RunFailureReason.UNEXPECTED_TERMINATION


def _plain(metadata: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, Any]:
    """Return the numbers, texts and paths, none escaped for Markdown; tables and pictures are left to the UI."""
    kinds = (
        *(dg.TextMetadataValue, dg.IntMetadataValue, dg.FloatMetadataValue, dg.BoolMetadataValue),
        *(dg.PathMetadataValue, dg.MarkdownMetadataValue),
    )
    values = ((key, value) for key, value in metadata.items() if isinstance(value, kinds))
    shown = ((key, value) for key, value in values if not str(value.value).startswith("!["))
    return {
        key: unescape(str(value.value)) if isinstance(value, dg.MarkdownMetadataValue) else value.value
        for key, value in shown
    }


def _outcome(evaluation: dg.AssetCheckEvaluation) -> CheckOutcome:
    figures = {
        key: str(value.value)
        for key, value in evaluation.metadata.items()
        if isinstance(value, dg.TextMetadataValue | dg.IntMetadataValue | dg.FloatMetadataValue)
    }
    name = f"{evaluation.asset_key.to_user_string()}/{evaluation.check_name}"
    blocks = evaluation.blocking is True and evaluation.severity is dg.AssetCheckSeverity.ERROR
    return CheckOutcome(name, evaluation.passed, blocks, figures)
