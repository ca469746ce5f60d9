"""Which headless runs are still at work, told by a lock that the system takes back from a process that is gone."""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import dagster as dg

from mens_pipeline.orchestration.progress import PROGRESS_LOGGER

_FOLDER: Final = "headless"


@contextmanager
def at_work(home: Path, run_id: str) -> Iterator[None]:
    """Hold the lock of a run for as long as the block runs.

    Args:
        home: `DAGSTER_HOME`.
        run_id: The run.
    """
    path = home / _FOLDER / run_id
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        path.unlink()


def fail_abandoned(home: Path, instance: dg.DagsterInstance) -> None:
    """Report the headless runs failed whose process was killed: no daemon watches them.

    Args:
        home: `DAGSTER_HOME`.
        instance: The instance there.
    """
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
    """Whether nobody holds the lock any more."""
    with path.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
