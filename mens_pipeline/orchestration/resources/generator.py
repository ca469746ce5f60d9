"""Launcher of generation processes."""

import time
from typing import Any

import dagster as dg

from mens_pipeline.inference.generation import MODULE, progress_of
from mens_pipeline.inference.prepare import PreparedGeneration
from mens_pipeline.orchestration.pipes import run_in_child


class Generator(dg.ConfigurableResource[None]):
    """Answers requests in a process of its own on this machine, through Dagster Pipes.

    Attributes:
        grace_seconds: How long a run that is cancelled may take to end.
        report_seconds: Seconds between two lines of progress.
    """

    grace_seconds: int = 20
    report_seconds: float = 10.0

    def run(self, context: dg.AssetExecutionContext, prepared: PreparedGeneration) -> int:
        """Generate, with progress in the log of the run.

        Returns:
            The exit code of the process.
        """
        last = 0.0

        def watch(events: list[dict[str, Any]]) -> None:
            nonlocal last
            if events and time.monotonic() - last >= self.report_seconds:
                last = time.monotonic()
                context.log.info("%s: %s", prepared.label, progress_of(events[-1]["payload"]))

        return run_in_child(context, MODULE, prepared.job_path, self.grace_seconds, watch)
