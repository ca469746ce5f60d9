"""Sensor on promotions."""

import dagster as dg

from mens_pipeline.orchestration.defs.jobs import deliver
from mens_pipeline.orchestration.defs.promotion import promoted_adapter


@dg.definitions
def sensors() -> dg.Definitions:
    """Define the sensor of the champion; off until a person switches it on: a merged model is as large as its base."""

    @dg.asset_sensor(
        asset_key=promoted_adapter.key,
        name="champion_changed",
        job=deliver,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Merges a new champion and hands it on. Off until a person switches it on.",
    )
    def champion_changed(context: dg.SensorEvaluationContext, event: dg.EventLogEntry) -> dg.RunRequest | dg.SkipReason:
        materialization = event.asset_materialization
        changed = materialization.metadata.get("changed") if materialization is not None else None
        if changed is None or changed.value is not True:
            return dg.SkipReason("the champion is still the same")
        context.log.info("a new champion, of %s", f"run {event.run_id}" if event.run_id else "`mens promote`")
        return dg.RunRequest(run_key=f"champion:{event.timestamp}")  # what a person did has no run

    return dg.Definitions(sensors=[champion_changed])
