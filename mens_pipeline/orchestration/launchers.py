"""Resources that have jobs done: on this machine, or training by a Ray cluster, with progress in the log of the run."""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import dagster as dg
from pydantic import Field

from mens_pipeline.delivery.trackers import Trackers
from mens_pipeline.inference.generation import progress_of
from mens_pipeline.inference.prepare import PreparedGeneration
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.progress import FILE, Follower
from mens_pipeline.jobs.protocol import LOG, ExitCode
from mens_pipeline.language import visible_text
from mens_pipeline.orchestration.failures import stop_if_canceled
from mens_pipeline.scratch.run import PreparedScratch
from mens_pipeline.settings import load_settings
from mens_pipeline.training.job import TrainingJob
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.telemetry_log import format_plan, update_of

JOB_TAG: Final = "mens/job"
HEADLESS: Final = "headless"
"""The job tag of runs in a terminal, which shows progress and not what libraries print."""

_STATUS_SECONDS: Final = 2.0
"""Between two looks at the status of a run whose child is at work."""


class _Answering(dg.ConfigurableResource[None]):
    """Runs jobs that load a model and answer, on this machine."""

    grace_seconds: int = Field(default=20, description="How long a run that is cancelled may take to end.")
    report_seconds: float = Field(default=10.0, description="Seconds between two lines of progress.")

    def _run_job(self, context: dg.AssetExecutionContext, job_path: Path) -> int:
        """Return the exit code; each event names the model that answers."""
        last = 0.0

        def watch(event: dict[str, Any]) -> None:
            nonlocal last
            if time.monotonic() - last >= self.report_seconds:
                last = time.monotonic()
                answer = event["payload"]
                context.log.info("%s: %s", answer["model"], progress_of(answer))

        return run_in_child(context, job_path, self.grace_seconds, watch)


class Generator(_Answering):
    """Answers prompts in a process of its own on this machine."""

    def run(self, context: dg.AssetExecutionContext, prepared: PreparedGeneration) -> int:
        """Generate, and return the exit code of the process."""
        return self._run_job(context, prepared.job_path)


class Merger(_Answering):
    """Merges and exports in a process of its own on this machine."""

    def run(self, context: dg.AssetExecutionContext, job_path: Path) -> int:
        """Run a job, and return the exit code of the process."""
        return self._run_job(context, job_path)


class Trainer(dg.ConfigurableResource[None]):
    """Trains in processes of their own.

    Attributes:
        launcher: `local`, `ray` or `kuberay`; empty means `MENS_LAUNCHER`. The scratch lane trains on this machine.
        grace_seconds: How long a run that is cancelled may take to write its checkpoint.
        report_seconds: Seconds between two observations of a run in the UI.
    """

    launcher: Literal["", "local", "ray", "kuberay"] = ""
    grace_seconds: int = 120
    report_seconds: float = 5.0

    def run(self, context: dg.AssetExecutionContext, prepared: PreparedRun | PreparedScratch) -> int:
        """Train, showing progress as observations of the asset, and return the exit code of the process."""
        settings = load_settings()
        trackers = Trackers(settings.trackers.get_secret_value(), prepared.job_path, context.log.warning)
        watch = _Watcher(context, self.report_seconds, trackers.take).watch
        launcher = self.launcher or settings.launcher
        code: int = ExitCode.INTERRUPTED
        try:
            if not isinstance(prepared.job, TrainingJob):
                code = run_in_child(context, prepared.job_path, self.grace_seconds, watch)
            elif launcher == "local":
                num_ranks = prepared.job.recipe.devices
                code = run_in_child(context, prepared.job_path, self.grace_seconds, watch, num_ranks)
            else:
                from mens_pipeline.orchestration.ray_job import run_on_ray  # noqa: PLC0415 - of an extra

                code = run_on_ray(context, prepared.job_path, watch, launcher)
        finally:
            trackers.end(code)
        return code


class _Watcher:
    """Passes lines of telemetry on to the event log."""

    def __init__(
        self, context: dg.AssetExecutionContext, seconds: float, track: Callable[[Mapping[str, Any]], None]
    ) -> None:
        self._track = track
        self._context = context
        self._seconds = seconds
        self._last = 0.0

    def watch(self, event: dict[str, Any]) -> None:
        self._track(event)
        payload = event["payload"]
        if event["event"] == "train_start" and (done := update_of(payload["resumed_from"])):
            self._context.log.info("training resumed at step %d of %d", done, payload["planned_steps"])
        elif event["event"] == "plan":
            self._context.log.info("training: %s", format_plan(payload))
        elif event["event"] == "step" and time.monotonic() - self._last >= self._seconds:
            self._last = time.monotonic()
            self._show(payload)

    def _show(self, step: dict[str, Any]) -> None:
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


def run_in_child(
    context: dg.AssetExecutionContext,
    job_path: Path,
    grace_seconds: float,
    watch: Callable[[dict[str, Any]], None],
    num_ranks: int = 1,
) -> int:
    """Do a job in a process of its own, and return its exit code; whatever ends the run, ends the process.

    `watch` takes each event of the job. What the process prints is shown beside the step, unless a terminal shows the
    run.
    """
    log, events = job_path.with_name(LOG), Follower(job_path.with_name(FILE), watch)
    is_headless = context.run.tags.get(JOB_TAG) == HEADLESS
    said, next_look = log.stat().st_size if log.is_file() else 0, 0.0

    def poll() -> None:
        nonlocal said, next_look
        if time.monotonic() >= next_look:
            stop_if_canceled(context)
            next_look = time.monotonic() + _STATUS_SECONDS
        if not is_headless:
            said = _pass_on(log, said)
        events.poll()

    return run_job(job_path, poll, grace_seconds=grace_seconds, num_ranks=num_ranks)


def _pass_on(log: Path, said: int) -> int:
    """Write what a process has printed to stderr, which Dagster shows beside the step; return how far that is."""
    if not log.is_file():
        return said
    with log.open("rb") as content:
        content.seek(said)
        new = content.read()
    sys.stderr.write(visible_text(new.decode("utf-8", "replace")))
    return said + len(new)
