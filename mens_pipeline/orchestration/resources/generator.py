"""Launchers of the processes that load a model and answer: for evaluation, and for delivery."""

import time
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from mens_pipeline.delivery.merge_job import MODULE as MERGING
from mens_pipeline.inference.generation import MODULE, progress_of
from mens_pipeline.inference.prepare import PreparedGeneration
from mens_pipeline.orchestration.pipes import run_in_child


class _Launcher(dg.ConfigurableResource[None]):
    """Runs a job in a process of its own on this machine, with progress in the log of the run."""

    grace_seconds: int = Field(default=20, description="How long a run that is cancelled may take to end.")
    report_seconds: float = Field(default=10.0, description="Seconds between two lines of progress.")

    def _launched(self, context: dg.AssetExecutionContext, module: str, job_path: Path) -> int:
        """Return the exit code; each event names the model that answers."""
        last = 0.0

        def watch(events: list[dict[str, Any]]) -> None:
            nonlocal last
            if events and time.monotonic() - last >= self.report_seconds:
                last = time.monotonic()
                answer = events[-1]["payload"]
                context.log.info("%s: %s", answer["model"], progress_of(answer))

        return run_in_child(context, module, job_path, self.grace_seconds, watch)


class Generator(_Launcher):
    """Answers prompts in a process of its own on this machine, through Dagster Pipes."""

    def run(self, context: dg.AssetExecutionContext, prepared: PreparedGeneration) -> int:
        """Generate, and return the exit code of the process."""
        return self._launched(context, MODULE, prepared.job_path)


class Merger(_Launcher):
    """Merges and exports in a process of its own on this machine, through Dagster Pipes."""

    def run(self, context: dg.AssetExecutionContext, job_path: Path) -> int:
        """Run a job, and return the exit code of the process."""
        return self._launched(context, MERGING, job_path)
