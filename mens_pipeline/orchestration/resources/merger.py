"""Launcher of the processes of delivery."""

import time
from pathlib import Path
from typing import Any

import dagster as dg

from mens_pipeline.delivery.merge_job import MODULE
from mens_pipeline.inference.generation import progress_of
from mens_pipeline.orchestration.pipes import run_in_child


class Merger(dg.ConfigurableResource[None]):
    """Merges and exports in a process of its own on this machine, through Dagster Pipes.

    Attributes:
        grace_seconds: How long a run that is cancelled may take to end.
        report_seconds: Seconds between two lines of progress.
    """

    grace_seconds: int = 20
    report_seconds: float = 10.0

    def run(self, context: dg.AssetExecutionContext, job_path: Path) -> int:
        """Run a job, with progress in the log of the run.

        Returns:
            The exit code of the process.
        """
        last = 0.0

        def watch(events: list[dict[str, Any]]) -> None:
            nonlocal last
            if events and time.monotonic() - last >= self.report_seconds:
                last = time.monotonic()
                answer = events[-1]["payload"]
                context.log.info("%s: %s", answer["model"], progress_of(answer))

        return run_in_child(context, MODULE, job_path, self.grace_seconds, watch)
