"""Resources of the code location."""

from typing import Final

import dagster as dg

from mens_pipeline.orchestration.defs.jobs import chosen_executor
from mens_pipeline.orchestration.headless import progress_logger
from mens_pipeline.orchestration.launchers import Generator, Trainer
from mens_pipeline.orchestration.resources import (
    ArtifactHandover,
    ArtifactStoreResource,
    Compute,
    SourceWatch,
    Telemetry,
    VoxWorkspace,
)

_FORKING: Final = dg.multiprocess_executor.configured(
    {
        "start_method": {
            "forkserver": {
                "preload_modules": ["mens_pipeline.definitions", "mens_pipeline.orchestration.defs.delivery"]
            }
        }
    },
    name="forking_executor",
)
"""A process for each step, forked from one that has loaded the definitions; what uses a GPU is a new process."""


@dg.definitions
def resources() -> dg.Definitions:
    """Define the resources of every asset and check, the loggers a run can select, and what starts its steps.

    Variables set resources, not the launchpad, which asks about what a run makes alone.
    """
    made: dict[str, object] = {
        "workspace": VoxWorkspace(),
        "store": ArtifactStoreResource(),
        "telemetry": Telemetry(),
        "compute": Compute(),
        "trainer": Trainer(),
        "generator": Generator(),
        "merger": Generator(),
        "source_watch": SourceWatch(),
    }
    return dg.Definitions(
        resources={
            "io_manager": ArtifactHandover(),
            **{name: dg.ResourceDefinition.hardcoded_resource(resource) for name, resource in made.items()},
        },
        executor=chosen_executor(_FORKING),
        loggers={"console": dg.colored_console_logger, "progress": progress_logger},
    )
