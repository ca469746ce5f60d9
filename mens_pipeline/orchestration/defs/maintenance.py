"""Keeping the store from growing for ever."""

import time

import dagster as dg
from pydantic import Field

from mens_pipeline.delivery.prune import prune
from mens_pipeline.delivery.retention import Plan, load_retention
from mens_pipeline.orchestration.defs.jobs import WRITES_STORE
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.settings import RETENTION

_COLUMNS = dg.TableSchema([dg.TableColumn(n) for n in ("action", "kind", "key", "name", "megabytes", "reason")])


class RetentionConfig(dg.Config):
    """What a person may choose for one run."""

    apply: bool = Field(default=False, description="Remove what the plan lets go; else it is only shown.")


@dg.op
def store_retention(
    context: dg.OpExecutionContext, config: RetentionConfig, store: ArtifactStoreResource
) -> dg.Output[int]:
    """Plan what config/retention.yaml lets go, show the plan, and remove it where that is asked for.

    The output is the number of bytes that the plan lets go.
    """

    def show(plan: Plan) -> None:
        verb = "removing" if config.apply else "dry run, to remove"
        context.log.info("%s: %d of %d folders", verb, len(plan.removed), len(plan.decisions))
        for decision in plan.removed:
            context.log.info("%s %s: %s", decision.item.kind, decision.item.key[:12], decision.reason)

    plan = prune(store.open(), load_retention(RETENTION), time.time(), apply=config.apply, show=show)
    return dg.Output(
        plan.num_removed_bytes,
        metadata={
            "applied": config.apply,
            "num_removed": len(plan.removed),
            "num_kept": len(plan.decisions) - len(plan.removed),
            "megabytes_removed": plan.num_removed_bytes / 1e6,
            "megabytes_kept": (plan.num_bytes - plan.num_removed_bytes) / 1e6,
            "plan": dg.MetadataValue.table(_rows(plan), schema=_COLUMNS),
        },
    )


@dg.job(tags=WRITES_STORE, description="Shows what the store would let go, and with `apply` removes it.")
def maintenance() -> None:
    """The plan, and with `apply` what it says."""
    store_retention()


weekly_maintenance = dg.ScheduleDefinition(
    name="weekly_maintenance",
    job=maintenance,
    cron_schedule="0 2 * * 0",
    execution_timezone="UTC",
    run_config=dg.RunConfig(ops={"store_retention": RetentionConfig(apply=True)}),
    tags={"mens/job": "maintenance"},
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Removes what config/retention.yaml lets go. Off until a person has read a dry run and switches it on.",
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
