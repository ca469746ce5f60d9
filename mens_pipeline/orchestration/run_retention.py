"""Which runs of the Dagster instance are let go: finished, old, and not the last to tell of anything."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import dagster as dg

_FINISHED: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class OldRun:
    """A finished run that is past its days.

    Attributes:
        run_id: The run.
        job_name: Of which job.
        status: How it ended.
        created: When it was made.
        keeps: Assets and checks whose last word it holds; with any it stays.
    """

    run_id: str
    job_name: str
    status: str
    created: datetime
    keeps: tuple[str, ...]


def plan_runs(instance: dg.DagsterInstance, days: int, now: float, own_run_id: str) -> tuple[OldRun, ...]:
    """Return the finished runs that are past their days, the oldest first.

    Args:
        instance: Where they are kept.
        days: How long runs are kept.
        now: Seconds since 1970.
        own_run_id: The run that asks, which is never one of them.
    """
    before = datetime.fromtimestamp(now - days * _DAY, tz=UTC)
    records = instance.get_run_records(dg.RunsFilter(statuses=_FINISHED, created_before=before), ascending=True)
    return tuple(
        OldRun(
            record.dagster_run.run_id,
            record.dagster_run.job_name,
            record.dagster_run.status.value,
            record.create_timestamp,
            tuple(sorted(set(_last_words(instance, record.dagster_run.run_id)))),
        )
        for record in records
        if record.dagster_run.run_id != own_run_id
    )


def delete_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """Delete a run with its events, and the output of its steps.

    Args:
        instance: Where it is kept.
        run_id: The run.
    """
    instance.delete_run(run_id)
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    for path in (Path(instance.root_directory) / "history" / "runs").glob(f"{run_id}.db*"):
        path.unlink()  # SQLite: Dagster empties it and leaves it


def _last_words(instance: dg.DagsterInstance, run_id: str) -> Iterator[str]:
    """Assets that no later run has made or looked at, and checks that no later run has judged."""
    kinds = {
        dg.DagsterEventType.ASSET_MATERIALIZATION,
        dg.DagsterEventType.ASSET_OBSERVATION,
        dg.DagsterEventType.ASSET_CHECK_EVALUATION,
    }
    for entry in instance.all_logs(run_id, of_type=kinds):
        event = entry.dagster_event
        if event is None:
            continue
        if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            check = event.asset_check_evaluation_data.asset_check_key
            judged = instance.event_log_storage.get_latest_asset_check_execution_by_key([check]).get(check)
            latest = judged.run_id if judged is not None else None
            name = f"{check.asset_key.to_user_string()}/{check.name}"
        elif event.asset_key is not None:
            is_made = event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION
            fetch = instance.fetch_materializations if is_made else instance.fetch_observations
            latest = next((record.run_id for record in fetch(event.asset_key, limit=1).records), None)
            name = event.asset_key.to_user_string()
        else:
            continue
        if latest == run_id:  # none where a person has wiped the asset
            yield name
