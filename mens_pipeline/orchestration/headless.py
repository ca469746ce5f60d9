"""The whole graph in one process, without a server, in the instance that the UI shows."""

import fcntl
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from html import unescape
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

import dagster as dg
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME
from dagster._core.events import RunFailureReason
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.storage.tags import CODE_LOCATION_TAG, REPOSITORY_LABEL_TAG
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.launchers import HEADLESS, JOB_TAG
from mens_pipeline.orchestration.metadata import reason_of, reasons_of
from mens_pipeline.orchestration.resources import VoxWorkspace, paths_in
from mens_pipeline.settings import Settings
from mens_pipeline.storage.documents import hold_lock

PROGRESS_LOGGER: Final = "mens_pipeline.progress"
"""The standard logger that receives one line for each event worth showing."""

_LINES: Final = {"STEP_START": "start", "STEP_SUCCESS": "done", "STEP_FAILURE": "FAILED", "STEP_SKIPPED": "skipped"}


class _EventHandler(logging.Handler):
    """Passes step events and what assets log on to the progress logger."""

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "dagster_event", None)
        meta = getattr(record, "dagster_meta", {})
        step = meta.get("step_key") or "run"
        message = meta.get("orig_message", record.getMessage())
        if event is None and message.startswith("Dependencies for step"):
            logging.getLogger(PROGRESS_LOGGER).info("not run: %s", step)
        elif event is None and record.levelno >= logging.INFO:
            logging.getLogger(PROGRESS_LOGGER).info("%s: %s", step, message)
        elif event is not None and event.event_type_value in _LINES:
            logging.getLogger(PROGRESS_LOGGER).info("%s: %s", _LINES[event.event_type_value], step)
            error = getattr(event.event_specific_data, "error", None)
            if error is not None:
                logging.getLogger(PROGRESS_LOGGER).error("%s", reason_of(error))
        elif event is not None and event.is_engine_event and "pool" in event.engine_event_data.metadata:
            logging.getLogger(PROGRESS_LOGGER).info("waiting: %s: %s", step, event.message)


@dg.logger
def progress_logger(_context: dg.InitLoggerContext) -> logging.Logger:
    """Return the logger that a headless run selects."""
    logger = logging.getLogger("mens_pipeline.dagster_events")
    logger.setLevel(logging.DEBUG)  # Dagster logs its step events at this level
    logger.propagate = False
    logger.handlers = [_EventHandler()]
    return logger


_FOLDER: Final = "headless"
_LOCATION: Final = "mens_pipeline"
"""As workspace.yaml calls the code location."""

_SHOWN: Final = {
    REPOSITORY_LABEL_TAG: f"{SINGLETON_REPOSITORY_NAME}@{_LOCATION}",
    CODE_LOCATION_TAG: _LOCATION,
    JOB_TAG: HEADLESS,
}
"""Tags by which the UI shows a run beside those that it started itself: on its first page, and with its job."""


def _origin_of(job_name: str) -> RemoteJobOrigin:
    """Return the origin that a run of a job has which the UI started itself."""
    target = LoadableTargetOrigin(module_name="mens_pipeline.definitions", working_directory=".")
    place = ManagedGrpcPythonEnvCodeLocationOrigin(loadable_target_origin=target, location_name=_LOCATION)
    return RemoteJobOrigin(RemoteRepositoryOrigin(place, SINGLETON_REPOSITORY_NAME), job_name)


@contextmanager
def at_work(home: Path, run_id: str) -> Iterator[None]:
    """Hold the lock of a run for as long as the block runs."""
    path = home / _FOLDER / run_id
    path.parent.mkdir(exist_ok=True)
    with hold_lock(path):
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
        is_error: Whether a failure is an error; otherwise it is a warning.
        figures: Its numbers and texts, in order; tables are left to the UI.
    """

    name: str
    passed: bool
    is_error: bool
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
        # `execute_in_process` passes no origin on; without one the timeline and the sensors of alerts see no run.
        origin = _origin_of(job_name)
        instance.create_run_for_job = partial(instance.create_run_for_job, remote_job_origin=origin)  # type: ignore[method-assign]
        result = job.execute_in_process(
            instance=instance,
            run_id=run_id,
            tags=_SHOWN,
            resources={"workspace": VoxWorkspace(root=str(settings.source_root))},
            run_config={"loggers": {"progress": {}}, "ops": ops},
            raise_on_error=False,
        )
        success = any(event.event_type is dg.DagsterEventType.RUN_SUCCESS for event in result.all_events)
        is_interrupted = not success and _is_interrupted(result)
        if is_interrupted:
            run = instance.get_run_by_id(run_id)
            if run is not None and run.status is not dg.DagsterRunStatus.CANCELED:
                instance.report_run_canceled(run, "It was interrupted where it was started.")
        elif not success:  # perhaps no daemon runs, whose sensors would tell of it
            reasons = "; ".join(reasons_of(result.get_step_failure_events()))
            logging.getLogger(PROGRESS_LOGGER).error("run %s of %s failed: %s", run_id, job_name, reasons)
        checks = tuple(_outcome(evaluation) for evaluation in result.get_asset_check_evaluations())
        figures = {
            event.asset_key.to_user_string(): _plain(made.metadata) | paths_in(made)
            for event in result.filter_events(lambda event: event.is_step_materialization)
            if event.asset_key is not None and (made := event.step_materialization_data.materialization)
        }
    return GraphOutcome(run_id, success, is_interrupted, checks, figures, perf_counter() - started)


def _is_interrupted(result: dg.ExecuteInProcessResult) -> bool:
    """Return whether SIGINT, within a step or between two, or a cancellation in the UI ended a run."""
    failures = (event.job_failure_data for event in result.all_events if event.is_run_failure)
    return all(failure.failure_reason is RunFailureReason.UNEXPECTED_TERMINATION for failure in failures)


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
    return CheckOutcome(name, evaluation.passed, evaluation.severity is dg.AssetCheckSeverity.ERROR, figures)
