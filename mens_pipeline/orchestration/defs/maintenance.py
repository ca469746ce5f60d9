"""Prune the store and the history of runs."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import dagster as dg
from pydantic import Field

from mens_pipeline.delivery.retention import RetentionPlan, load_retention, prune
from mens_pipeline.orchestration.metadata import table
from mens_pipeline.orchestration.resources import ArtifactStoreResource
from mens_pipeline.settings import RETENTION, load_settings

_FINISHED: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class OldRun:
    """A finished run that is too old; it stays if it has the latest event of the assets or checks in `keeps`."""

    run_id: str
    job_name: str
    status: str
    created: datetime
    keeps: tuple[str, ...]


def plan_runs(instance: dg.DagsterInstance, days: int, now: float, own_run_id: str) -> tuple[OldRun, ...]:
    """Return finished runs older than `days`, oldest first, except the calling run.

    If all runs are older, return nothing: the clock may have jumped.
    """
    before = datetime.fromtimestamp(now - days * _DAY, tz=UTC)
    if not instance.get_run_records(dg.RunsFilter(statuses=_FINISHED, created_after=before), limit=1):
        return ()
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
    """Delete a run, its events and the output of its steps."""
    instance.delete_run(run_id)
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    for path in (Path(instance.root_directory) / "history" / "runs").glob(f"{run_id}.db*"):
        path.unlink()  # Dagster empties the SQLite file and leaves it


def _last_words(instance: dg.DagsterInstance, run_id: str) -> Iterator[str]:
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
            evaluated = instance.event_log_storage.get_latest_asset_check_execution_by_key([check]).get(check)
            latest = evaluated.run_id if evaluated is not None else None
            name = f"{check.asset_key.to_user_string()}/{check.name}"
        elif event.asset_key is not None:
            is_made = event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION
            fetch = instance.fetch_materializations if is_made else instance.fetch_observations
            partitions = [event.partition] if event.partition is not None else None
            of_it = dg.AssetRecordsFilter(event.asset_key, asset_partitions=partitions)
            latest = next((record.run_id for record in fetch(of_it, limit=1).records), None)
            name = "/".join((event.asset_key.to_user_string(), *(partitions or ())))
        else:
            continue
        if latest == run_id:  # None if a person wiped the asset
            yield name


_COLUMNS: Final = ("action", "kind", "key", "name", "megabytes", "reason")
_RUN_COLUMNS: Final = ("action", "run", "job", "status", "created", "reason")


class RetentionConfig(dg.Config):
    """Run configuration of the pruning."""

    apply: bool = Field(default=False, description="Delete the listed artifacts and runs, not only list them.")


@dg.op(out=dg.Out(dg.Nothing))
def store_retention(
    context: dg.OpExecutionContext, config: RetentionConfig, store: ArtifactStoreResource
) -> dg.Output[None]:
    """Show which artifacts config/retention.yaml removes and, with `apply`, remove them."""

    def show(plan: RetentionPlan) -> None:
        verb = "removing" if config.apply else "dry run, to remove"
        context.log.info("%s: %d of %d folders", verb, len(plan.removed), len(plan.decisions))
        for decision in plan.removed:
            context.log.info("%s %s: %s", decision.item.kind, decision.item.key[:12], decision.reason)

    plan = prune(store.open(), load_retention(RETENTION), time.time(), apply=config.apply, show=show)
    return dg.Output(
        None,
        metadata={
            "applied": config.apply,
            "num_removed": len(plan.removed),
            "num_kept": len(plan.decisions) - len(plan.removed),
            "megabytes_removed": plan.num_removed_bytes / 1e6,
            "megabytes_kept": (plan.num_bytes - plan.num_removed_bytes) / 1e6,
            "plan": table(_rows(plan), _COLUMNS),
        },
    )


@dg.op(out=dg.Out(dg.Nothing))
def run_retention(context: dg.OpExecutionContext, config: RetentionConfig) -> dg.Output[None]:
    """Show which old runs config/retention.yaml removes and, with `apply`, delete them."""
    runs = plan_runs(context.instance, load_retention(RETENTION).runs, time.time(), context.run_id)
    gone = [run for run in runs if not run.keeps]
    context.log.info(
        "%s: %d of %d old runs", "deleting" if config.apply else "dry run, to delete", len(gone), len(runs)
    )
    for run in gone if config.apply else ():
        delete_run(context.instance, run.run_id)
    return dg.Output(
        None,
        metadata={
            "applied": config.apply,
            "num_removed": len(gone),
            "num_kept": len(runs) - len(gone),
            "plan": table([_row(run) for run in runs], _RUN_COLUMNS),
        },
    )


@dg.job(description="Shows which artifacts and old runs would be removed; removes them with `apply`.")
def maintenance() -> None:
    """Prune store and runs."""
    store_retention()
    run_retention()


@dg.definitions
def upkeep() -> dg.Definitions:
    """Define the job and its schedule, which starts running in production."""
    is_production = load_settings().environment == "prod"
    weekly = dg.ScheduleDefinition(
        name="weekly_maintenance",
        job=maintenance,
        cron_schedule="0 2 * * 0",
        execution_timezone="UTC",
        run_config=dg.RunConfig(
            ops={name: RetentionConfig(apply=True) for name in ("store_retention", "run_retention")}
        ),
        tags={"mens/job": "maintenance"},
        default_status=dg.DefaultScheduleStatus.RUNNING if is_production else dg.DefaultScheduleStatus.STOPPED,
        description="Prunes the store and old runs by config/retention.yaml. On by default in production; elsewhere, "
        "read a dry run before you turn it on.",
    )
    return dg.Definitions(jobs=[maintenance], schedules=[weekly])


def _row(run: OldRun) -> dict[str, Any]:
    return {
        "action": "keep" if run.keeps else "remove",
        "run": run.run_id,
        "job": run.job_name,
        "status": run.status,
        "created": run.created.strftime("%Y-%m-%d %H:%M UTC"),
        "reason": f"the last of {', '.join(run.keeps)}" if run.keeps else "past its retention period",
    }


def _rows(plan: RetentionPlan) -> list[dict[str, Any]]:
    return [
        {
            "action": decision.action,
            "kind": decision.item.kind,
            "key": decision.item.key[:12],
            "name": decision.item.name,
            "megabytes": f"{decision.item.num_bytes / 1e6:.1f}",
            "reason": decision.reason,
        }
        for decision in plan.decisions
    ]
