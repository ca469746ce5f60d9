"""What is said when a run failed, or ended well without an adapter in use; nothing is sent anywhere."""

import dagster as dg

from mens_pipeline.orchestration.defs.jobs import whole_graph
from mens_pipeline.orchestration.defs.promotion import promoted_adapter
from mens_pipeline.orchestration.failures import reasons_of
from mens_pipeline.settings import load_settings


@dg.definitions
def alerts() -> dg.Definitions:
    """Define the sensors of runs that ended; on from the start in production."""
    is_production = load_settings().environment == "prod"
    status = dg.DefaultSensorStatus.RUNNING if is_production else dg.DefaultSensorStatus.STOPPED
    return dg.Definitions(sensors=[_failed_sensor(status), _unpromoted_sensor(status)])


def _failed_sensor(status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    @dg.run_failure_sensor(
        name="run_failed",
        default_status=status,
        description="Logs one line for a run that failed: job, step, reason.",
    )
    def failed(context: dg.RunFailureSensorContext) -> None:
        run = context.dagster_run
        reasons = list(reasons_of(context.get_step_failure_events())) or [
            context.failure_event.message or "no reason was given"
        ]
        context.log.error("run %s of %s failed: %s", run.run_id, run.job_name, "; ".join(reasons))

    return failed


def _unpromoted_sensor(status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    @dg.run_status_sensor(
        name="run_without_promotion",
        run_status=dg.DagsterRunStatus.SUCCESS,
        monitored_jobs=[whole_graph],
        default_status=status,
        description="Warns of a run of the whole graph that ended well, and promoted nothing.",
    )
    def unpromoted(context: dg.RunStatusSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        if not _has(context, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED):
            return dg.SkipReason(f"run {run.run_id} was not asked for a promotion")
        if _has(context, dg.DagsterEventType.ASSET_MATERIALIZATION):
            return dg.SkipReason(f"run {run.run_id} promoted its adapter, or confirmed the one in use")
        context.log.warning(
            "run %s of %s promoted nothing: the gate refused its adapter, or a rollback had; see its promoted_adapter",
            run.run_id,
            run.job_name,
        )
        return None

    return unpromoted


def _has(context: dg.RunStatusSensorContext, event_type: dg.DagsterEventType) -> bool:
    """Whether the run has an event of the adapter in use; its selection does not tell, which may be none or empty."""
    events = (
        entry.dagster_event for entry in context.instance.all_logs(context.dagster_run.run_id, of_type=event_type)
    )
    return any(event is not None and event.asset_key == promoted_adapter.key for event in events)
