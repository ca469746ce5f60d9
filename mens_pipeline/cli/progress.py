"""Training and generation on a terminal: their processes, and lines of progress."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mens_pipeline.cli.terminal import log_line
from mens_pipeline.jobs.device import Device, DeviceChoice, resolve_device
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.progress import Follower
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.settings import Settings
from mens_pipeline.training.telemetry_log import format_plan, step_of

_EVERY_SECONDS: Final = 5.0


def choose_device(choice: DeviceChoice, settings: Settings) -> Device:
    """Return the device of a job, and print which one it is."""
    device = resolve_device(choice, force_cpu=settings.backend == "cpu")
    log_line(f"device {device.kind}: {device.name}")
    return device


def run_and_show(
    job_path: Path,
    show: Callable[[dict[str, Any]], None],
    *,
    grace_seconds: float = 20.0,
    num_ranks: int = 1,
    on_ray: bool = False,
) -> int:
    """Do a job in a process of its own, pass on each of its events, and return its exit code."""
    poll = Follower(job_path.with_name(TELEMETRY), show).poll
    return run_job(job_path, poll, grace_seconds=grace_seconds, num_ranks=num_ranks, on_ray=on_ray)


def show_steps() -> Callable[[dict[str, Any]], None]:
    """Return a callback that prints training progress, at most one line a second."""
    shown = 0.0

    def show(line: dict[str, Any]) -> None:
        nonlocal shown
        step = line["payload"]
        if line["event"] == "train_start":
            first = step_of(step["resumed_from"])
            log_line(f"training from step {first} of {step['planned_steps']}")
            if "computed_by" in step:  # not of the scratch lane, where nothing is replaced
                log_line(f"training: {step['computed_by']}; first loss {step['first_loss']:.3f}")
        elif line["event"] == "plan":
            log_line(f"training: {format_plan(step)}")
        elif line["event"] == "step" and (time.monotonic() - shown > 1 or step["step"] == step["max_steps"]):
            shown = time.monotonic()
            progress = f"step {step['step']}/{step['max_steps']}  loss {step['loss']:.3f}"
            speed = f"gradient {step['grad_norm']:.2f}  {step['tokens_per_second']:.0f} tokens/s"
            log_line(f"{progress}  {speed}  {step['seconds'] / 60:.1f} min, {step['eta_seconds'] / 60:.1f} min to go")

    return show


def show_completions() -> Callable[[dict[str, Any]], None]:
    """Return a callback that prints how many completions are done, every few seconds and at the end of each model."""
    from mens_pipeline.inference.generation import progress_of

    shown = 0.0

    def show(event: dict[str, Any]) -> None:
        nonlocal shown
        completion = event["payload"]
        if time.monotonic() - shown > _EVERY_SECONDS or completion["num_done"] == completion["num_answers"]:
            shown = time.monotonic()
            log_line(f"{completion['model']}: {progress_of(completion)}")

    return show
