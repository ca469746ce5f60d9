"""The Dagster instance of this machine: open it, run jobs in it without a server, and record champions in it."""

import logging
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from html import unescape
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

import dagster as dg

# The UI groups runs by these origins and tags, and only its own launches set them.
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME
from dagster._core.events import RunFailureReason  # tells an interruption from a failed step; nothing public does
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.storage.tags import CODE_LOCATION_TAG, MAX_RETRIES_TAG, REPOSITORY_LABEL_TAG
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.orchestration.asset import NEXT, read_reason, read_reasons, read_refusals
from mens_pipeline.orchestration.launchers import HEADLESS, JOB_TAG
from mens_pipeline.orchestration.resources import VoxWorkspace, champion_metadata, paths_in, reference
from mens_pipeline.promotion.promote import Promotion
from mens_pipeline.settings import PROJECT_ROOT, Settings
from mens_pipeline.storage.documents import hold_lock, lock_abandoned
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore

_LOCK: Final = ".opening.lock"
_PER_RUN: Final[Mapping[str, Any]] = {"concurrency": {"pools": {"granularity": "run"}}}
"""Keeps headless runs out of the pools. A killed process holds its slot until a daemon frees it, and there may be no
daemon; the device lock, which ends with its process, still admits one run at a time."""


def open_instance(home: Path, *, is_headless: bool = False) -> dg.DagsterInstance:
    """Open the instance that the UI shows, and create its folder on first use; `ConfigurationError` if it cannot."""
    config = home / "dagster.yaml"
    try:
        home.mkdir(parents=True, exist_ok=True)
        # Dagster creates its databases when they are first opened. If several processes do so at once, one fails and
        # leaves two heads in the version table, which breaks every later command.
        with hold_lock(home / _LOCK):
            if not config.exists():
                config.unlink(missing_ok=True)  # a dangling link, if the clone was moved
                config.symlink_to(PROJECT_ROOT / "dagster.yaml")
            instance = dg.DagsterInstance.local_temp(str(home.resolve()), _PER_RUN if is_headless else {})
            instance.get_runs_count()
            instance.event_log_storage.get_maximum_record_id()
            instance.all_instigator_state()
            return instance
    except OSError as error:
        raise ConfigurationError(f"{home}: {error.strerror}. Set DAGSTER_HOME to a writable folder.") from error
    except dg.DagsterInvalidConfigError as error:
        raise ConfigurationError(f"{config}: {error}. Correct the file.") from error


def report_champion(promotion: Promotion, store: ArtifactStore, home: Path) -> str:
    """Record a promotion made outside of runs, if there is an instance, so that sensors and UI see it.

    Return the error of Dagster, or an empty text. Nothing is raised, because the champion is already in use.
    """
    if not (home / "dagster.yaml").is_file():
        return ""
    event = dg.AssetMaterialization(
        Kind.PROMOTED_ADAPTER,
        description="Changed by hand.",
        metadata={**champion_metadata(promotion, store), **reference(promotion.champion.ref())},
        tags={"dagster/data_version": promotion.champion.key},
    )
    try:
        with open_instance(home) as instance:
            instance.report_runless_asset_event(event)
    except Exception as error:  # noqa: BLE001 - of Dagster, SQLAlchemy, alembic or a database driver
        return f"{type(error).__name__}: {error}"
    return ""


PROGRESS_LOGGER: Final = "mens_pipeline.progress"
"""The standard logger that receives a line for each event worth showing."""

_LINES: Final = {"STEP_START": "start", "STEP_SUCCESS": "done", "STEP_FAILURE": "FAILED", "STEP_SKIPPED": "skipped"}


class _EventHandler(logging.Handler):
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
            error = getattr(event.event_specific_data, "error", None)
            is_interrupted = error is not None and error.cls_name == dg.DagsterExecutionInterruptedError.__name__
            word = "interrupted" if is_interrupted else _LINES[event.event_type_value]
            logging.getLogger(PROGRESS_LOGGER).info("%s: %s", word, step)
            if error is not None and not is_interrupted:
                logging.getLogger(PROGRESS_LOGGER).error("%s", read_reason(error))
        elif event is not None and event.is_engine_event and "pool" in event.engine_event_data.metadata:
            logging.getLogger(PROGRESS_LOGGER).info("waiting: %s: %s", step, event.message)


@dg.logger
def progress_logger(_context: dg.InitLoggerContext) -> logging.Logger:
    """Return the Dagster logger that headless runs use."""
    logger = logging.getLogger("mens_pipeline.dagster_events")
    logger.setLevel(logging.DEBUG)  # the level of Dagster's step events
    logger.propagate = False
    logger.handlers = [_EventHandler()]
    return logger


_FOLDER: Final = "headless"
_LOCATION: Final = "mens_pipeline"  # name of the code location in workspace.yaml
_SHOWN: Final = {
    REPOSITORY_LABEL_TAG: f"{SINGLETON_REPOSITORY_NAME}@{_LOCATION}",
    CODE_LOCATION_TAG: _LOCATION,
    JOB_TAG: HEADLESS,
    MAX_RETRIES_TAG: "0",
}
"""Tags that make the UI list a run with its job and among its own runs.

They disable retries: a daemon would repeat the run in an environment that is not the user's.
"""


@contextmanager
def _hold_run(home: Path, run_id: str) -> Iterator[None]:
    path = home / _FOLDER / run_id
    path.parent.mkdir(exist_ok=True)
    with hold_lock(path):
        yield
        path.unlink()


def _fail_abandoned(home: Path, instance: dg.DagsterInstance) -> None:
    """Report headless runs whose process was killed as failed; no daemon watches them."""
    for path in sorted((home / _FOLDER).glob("*")):
        run = instance.get_run_by_id(path.name)
        if run is None or not _is_free(path):
            continue
        if not run.is_finished:
            instance.report_run_failed(run, "its process is gone: it was killed, or the machine went down")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            logging.getLogger(PROGRESS_LOGGER).info("run %s was killed; reporting it as failed", run.run_id)
        path.unlink(missing_ok=True)


def _is_free(path: Path) -> bool:
    with suppress(BlockingIOError), lock_abandoned(path):
        return True
    return False


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """Outcome of an asset check; a failure is an error if `is_error`, else a warning.

    `figures` are its numbers and texts, in order; only the UI shows its tables.
    """

    name: str
    passed: bool
    is_error: bool
    figures: dict[str, str]


@dataclass(frozen=True, slots=True)
class GraphOutcome:
    """Outcome of a headless run.

    It succeeds if no step and no blocking check failed. A run that a person stopped is recorded as canceled.
    `figures` map assets to their metadata, plain values only.
    """

    run_id: str
    success: bool
    is_interrupted: bool
    checks: tuple[CheckOutcome, ...]
    figures: dict[str, dict[str, Any]]
    seconds: float

    @property
    def is_promoted(self) -> bool:
        """Whether the run promoted an adapter or confirmed the champion."""
        return self.success and "promoted_adapter" in self.figures


def run_graph(
    definitions: dg.Definitions,
    settings: Settings,
    job_name: str,
    configs: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> GraphOutcome:
    """Run a job in this process and log its progress to `mens_pipeline.progress`.

    `settings` name the home of the instance and the workspace; `configs` map assets to their run configuration.
    """
    started, run_id = perf_counter(), str(uuid4())
    job = definitions.resolve_job_def(job_name)
    ops = {asset: {"config": dict(config)} for asset, config in configs.items()}
    home = settings.dagster_home
    with open_instance(home, is_headless=True) as instance, _hold_run(home, run_id):
        _fail_abandoned(home, instance)
        # `execute_in_process` sets no origin; without one, the timeline and the sensors of alerts miss the run.
        target = LoadableTargetOrigin(module_name="mens_pipeline.definitions", working_directory=".")
        place = ManagedGrpcPythonEnvCodeLocationOrigin(loadable_target_origin=target, location_name=_LOCATION)
        origin = RemoteJobOrigin(RemoteRepositoryOrigin(place, SINGLETON_REPOSITORY_NAME), job_name)
        manager = instance.compute_log_manager
        manager.capture_logs = partial(_capture_through_interrupts, manager.capture_logs)  # type: ignore[method-assign]
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
                instance.report_run_canceled(run, "Interrupted in the terminal that started it.")
        elif not success:  # without a daemon, no sensor reports it
            reasons = "; ".join(read_reasons(result.get_step_failure_events(), read_refusals(instance, run_id)))
            logging.getLogger(PROGRESS_LOGGER).error("%s (run %s of %s failed)", reasons, run_id, job_name)
        checks = tuple(_read_outcome(evaluation) for evaluation in result.get_asset_check_evaluations())
        figures = {
            event.asset_key.to_user_string(): _keep_plain(made.metadata) | paths_in(made)
            for event in result.filter_events(lambda event: event.is_step_materialization)
            if event.asset_key is not None and (made := event.step_materialization_data.materialization)
        }
    return GraphOutcome(run_id, success, is_interrupted, checks, figures, perf_counter() - started)


@contextmanager
def _capture_through_interrupts(
    capture: Callable[..., AbstractContextManager[Any]], key: Sequence[str]
) -> Iterator[Any]:
    """Capture the output of a step in processes that ignore Ctrl-C, which a terminal sends to all processes."""
    with ExitStack() as stack:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            captured = stack.enter_context(capture(key))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield captured


def _is_interrupted(result: dg.ExecuteInProcessResult) -> bool:
    failures = (event.job_failure_data for event in result.all_events if event.is_run_failure)
    return all(failure.failure_reason is RunFailureReason.UNEXPECTED_TERMINATION for failure in failures)


def _keep_plain(metadata: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, Any]:
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


def _read_outcome(evaluation: dg.AssetCheckEvaluation) -> CheckOutcome:
    figures = {
        key: str(value.value)
        for key, value in evaluation.metadata.items()
        if key != NEXT and isinstance(value, dg.TextMetadataValue | dg.IntMetadataValue | dg.FloatMetadataValue)
    }
    name = f"{evaluation.asset_key.to_user_string()}/{evaluation.check_name}"
    return CheckOutcome(name, evaluation.passed, evaluation.severity is dg.AssetCheckSeverity.ERROR, figures)
