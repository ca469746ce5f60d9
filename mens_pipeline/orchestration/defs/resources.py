"""What the assets are handed."""

import dagster as dg

from mens_pipeline.orchestration.progress import progress_logger
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.orchestration.resources.compute import Compute
from mens_pipeline.orchestration.resources.generator import Generator
from mens_pipeline.orchestration.resources.merger import Merger
from mens_pipeline.orchestration.resources.source_watch import SourceWatch
from mens_pipeline.orchestration.resources.telemetry import Telemetry
from mens_pipeline.orchestration.resources.trainer import Trainer
from mens_pipeline.orchestration.resources.workspace import VoxWorkspace


@dg.definitions
def resources() -> dg.Definitions:
    """The resources of every asset and check, and the loggers a run can select."""
    return dg.Definitions(
        resources={
            "workspace": VoxWorkspace(),
            "store": ArtifactStoreResource(),
            "telemetry": Telemetry(),
            "compute": Compute(),
            "trainer": Trainer(),
            "generator": Generator(),
            "merger": Merger(),
            "source_watch": SourceWatch(),
        },
        loggers={"console": dg.colored_console_logger, "progress": progress_logger},
    )
