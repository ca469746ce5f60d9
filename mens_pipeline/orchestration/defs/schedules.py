"""Schedules of the code location."""

import dagster as dg

from mens_pipeline.orchestration.defs.extraction import ExtractionConfig
from mens_pipeline.orchestration.defs.jobs import whole_graph
from mens_pipeline.settings import load_settings


@dg.definitions
def schedules() -> dg.Definitions:
    """Define the schedules; on from the start in production, else they wait to be switched on."""
    is_production = load_settings().environment == "prod"
    nightly = dg.ScheduleDefinition(
        name="nightly",
        job=whole_graph,
        cron_schedule="0 4 * * *",
        execution_timezone="UTC",
        run_config=dg.RunConfig(ops={"extracted_corpus": ExtractionConfig(full=True)}),
        tags={"mens/job": "nightly"},
        default_status=dg.DefaultScheduleStatus.RUNNING if is_production else dg.DefaultScheduleStatus.STOPPED,
        description="Every file is extracted anew; what then has not changed is not made again.",
    )
    return dg.Definitions(schedules=[nightly])
