"""Training and generation on a terminal: their processes, and lines of progress."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mens_pipeline.cli.terminal import tell
from mens_pipeline.training.telemetry_log import update_of
from mens_pipeline.training.told import told_plan

_EVERY_SECONDS: Final = 5.0


def run_and_show(
    module: str, job_path: Path, log: str, show: Callable[[dict[str, Any]], None], grace_seconds: float = 20.0
) -> int:
    """Run a job in a process of its own, pass on each event of its log beside the job, and return its exit code."""
    from mens_pipeline.training.environment import training_environment
    from mens_pipeline.training.launch import run_child
    from mens_pipeline.training.telemetry_log import Follower

    poll, output = Follower(job_path.with_name(log), show).poll, job_path.with_name("child.log")
    return run_child(module, job_path, training_environment(), poll, grace_seconds, output)


def show_steps() -> Callable[[dict[str, Any]], None]:
    """Return a callback that prints training progress, at most one line a second."""
    shown = 0.0

    def show(line: dict[str, Any]) -> None:
        nonlocal shown
        step = line["payload"]
        if line["event"] == "train_start":
            first = update_of(step["resumed_from"])
            tell(f"training from step {first} of {step['planned_steps']}")
        elif line["event"] == "plan":
            tell(f"training: {told_plan(step)}")
        elif line["event"] == "step" and (time.monotonic() - shown > 1 or step["step"] == step["max_steps"]):
            shown = time.monotonic()
            progress = f"step {step['step']}/{step['max_steps']}  loss {step['loss']:.3f}"
            speed = f"gradient {step['grad_norm']:.2f}  {step['tokens_per_second']:.0f} tokens/s"
            tell(f"{progress}  {speed}  {step['seconds'] / 60:.1f} min, {step['eta_seconds'] / 60:.1f} min to go")

    return show


def show_answers() -> Callable[[dict[str, Any]], None]:
    """Return a callback that prints how many answers are done, every few seconds and at the end of each model."""
    from mens_pipeline.inference.generation import progress_of

    shown = 0.0

    def show(event: dict[str, Any]) -> None:
        nonlocal shown
        answer = event["payload"]
        if time.monotonic() - shown > _EVERY_SECONDS or answer["num_done"] == answer["num_answers"]:
            shown = time.monotonic()
            tell(f"{answer['model']}: {progress_of(answer)}")

    return show
