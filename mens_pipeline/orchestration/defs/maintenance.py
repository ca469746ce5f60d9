"""Keeping the store and the history of runs from growing for ever."""

import time

import dagster as dg
from pydantic import Field

from mens_pipeline.delivery.prune import prune
from mens_pipeline.delivery.retention import Plan, load_retention
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.orchestration.run_retention import OldRun, delete_run, plan_runs
from mens_pipeline.settings import RETENTION

_COLUMNS = dg.TableSchema([dg.TableColumn(n) for n in ("action", "kind", "key", "name", "megabytes", "reason")])
_RUN_COLUMNS = dg.TableSchema([dg.TableColumn(n) for n in ("action", "run", "job", "status", "created", "reason")])


class RetentionConfig(dg.Config):
    """What a person may choose for one run."""

    apply: bool = Field(default=False, description="Delete what the plan names; else it is only shown.")


@dg.op(out=dg.Out(dg.Nothing))
def store_retention(
    context: dg.OpExecutionContext, config: RetentionConfig, store: ArtifactStoreResource
) -> dg.Output[None]:
    """Plan what config/retention.yaml deletes, show the plan, and remove it where that is asked for."""

    def show(plan: Plan) -> None:
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
            "plan": dg.MetadataValue.table(_rows(plan), schema=_COLUMNS),
        },
    )


@dg.op(out=dg.Out(dg.Nothing))
def run_retention(context: dg.OpExecutionContext, config: RetentionConfig) -> dg.Output[None]:
    """Plan which runs of Dagster config/retention.yaml deletes, show the plan, and delete them where asked for."""
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
            "plan": dg.MetadataValue.table([_row(run) for run in runs], schema=_RUN_COLUMNS),
        },
    )


@dg.job(
    description="Shows which artifacts of the store and which old runs would go, and with `apply` removes them.",
)
def maintenance() -> None:
    """Show what the plans would remove, and with `apply` remove it."""
    store_retention()
    run_retention()


weekly_maintenance = dg.ScheduleDefinition(
    name="weekly_maintenance",
    job=maintenance,
    cron_schedule="0 2 * * 0",
    execution_timezone="UTC",
    run_config=dg.RunConfig(ops={name: RetentionConfig(apply=True) for name in ("store_retention", "run_retention")}),
    tags={"mens/job": "maintenance"},
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Removes what config/retention.yaml deletes. Off until a person has read a dry run and switches it on.",
)


def _row(run: OldRun) -> dg.TableRecord:
    return dg.TableRecord(
        {
            "action": "keep" if run.keeps else "remove",
            "run": run.run_id,
            "job": run.job_name,
            "status": run.status,
            "created": run.created.strftime("%Y-%m-%d %H:%M UTC"),
            "reason": f"the last of {', '.join(run.keeps)}" if run.keeps else "past its days",
        }
    )


def _rows(plan: Plan) -> list[dg.TableRecord]:
    return [
        dg.TableRecord(
            {
                "action": decision.action,
                "kind": decision.item.kind,
                "key": decision.item.key[:12],
                "name": decision.item.name,
                "megabytes": f"{decision.item.num_bytes / 1e6:.1f}",
                "reason": decision.reason,
            }
        )
        for decision in plan.decisions
    ]
