"""Launcher of training: processes of this machine, or a Ray cluster."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import dagster as dg

from mens_pipeline.delivery.trackers import Trackers
from mens_pipeline.orchestration.pipes import run_in_child
from mens_pipeline.settings import load_settings
from mens_pipeline.training.job import MODULE, ExitCode
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.scratch.prepare import PreparedScratch
from mens_pipeline.training.telemetry_log import update_of
from mens_pipeline.training.told import told_plan


class Trainer(dg.ConfigurableResource[None]):
    """Trains in processes of their own, through Dagster Pipes.

    Attributes:
        launcher: `local`, `ray` or `kuberay`; empty means `MENS_LAUNCHER`. The scratch lane trains on this machine.
        grace_seconds: How long a run that is cancelled may take to write its checkpoint.
        report_seconds: Seconds between two observations of a run in the UI.
    """

    launcher: Literal["", "local", "ray", "kuberay"] = ""
    grace_seconds: int = 120
    report_seconds: float = 5.0

    def run(
        self,
        context: dg.AssetExecutionContext,
        prepared: PreparedRun | PreparedScratch,
        module: str = MODULE,
        num_processes: int = 1,
    ) -> int:
        """Train, showing progress as observations of the asset, and return the exit code of the process."""
        settings = load_settings()
        trackers = Trackers(settings.trackers.get_secret_value(), prepared.job_path, context.log.warning)
        watch = _Watcher(context, self.report_seconds, trackers.take).watch
        code: int = ExitCode.INTERRUPTED
        try:
            code = self._launched(context, prepared, module, num_processes, watch, self.launcher or settings.launcher)
        finally:
            trackers.end(code)
        return code

    def _launched(  # noqa: PLR0913, PLR0917 - what a process is started with
        self,
        context: dg.AssetExecutionContext,
        prepared: PreparedRun | PreparedScratch,
        module: str,
        num_processes: int,
        watch: Callable[[list[dict[str, Any]]], None],
        launcher: Literal["local", "ray", "kuberay"],
    ) -> int:
        if launcher != "local" and module == MODULE:
            from mens_pipeline.orchestration.ray_job import run_on_ray  # noqa: PLC0415 - of an extra

            return run_on_ray(context, prepared.job_path, watch, launcher)
        return run_in_child(context, module, prepared.job_path, self.grace_seconds, watch, num_processes)


class _Watcher:
    """Passes lines of telemetry on to the event log."""

    def __init__(
        self, context: dg.AssetExecutionContext, seconds: float, track: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._track = track
        self._context = context
        self._seconds = seconds
        self._last = 0.0

    def watch(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            self._track(event)
            if event["event"] == "train_start" and (done := update_of(event["payload"]["resumed_from"])):
                self._context.log.info("training resumed at step %d of %d", done, event["payload"]["planned_steps"])
            if event["event"] == "plan":
                self._context.log.info("training: %s", told_plan(event["payload"]))
        steps = [event["payload"] for event in events if event["event"] == "step"]
        if not steps or time.monotonic() - self._last < self._seconds:
            return
        self._last = time.monotonic()
        step = steps[-1]
        progress = f"step {step['step']}/{step['max_steps']}, loss {step['loss']:.3f}"
        self._context.log.info(
            "%s, %.0f tokens/s, %.1f min to go", progress, step["tokens_per_second"], step["eta_seconds"] / 60
        )
        self._context.log_event(
            dg.AssetObservation(
                self._context.asset_key,
                metadata={
                    "train/step": step["step"],
                    "train/loss": round(step["loss"], 4),
                    "train/grad_norm": round(step["grad_norm"], 4),
                    "train/tokens_per_second": round(step["tokens_per_second"], 1),
                },
            )
        )
