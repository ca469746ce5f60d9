"""What a command that trains shows while it does."""

import time
from collections.abc import Callable
from typing import Any

from mens_pipeline.cli.terminal import say
from mens_pipeline.training.telemetry_log import update_of


def show_updates() -> Callable[[dict[str, Any]], None]:
    """What prints a line for each update, at most one a second."""
    shown = 0.0

    def show(line: dict[str, Any]) -> None:
        nonlocal shown
        step = line["payload"]
        if line["event"] == "train_start":
            first = update_of(step["resumed_from"])
            tell(f"training from update {first} of {step['planned_steps']}")
        elif line["event"] == "step" and (time.monotonic() - shown > 1 or step["step"] == step["max_steps"]):
            shown = time.monotonic()
            progress = f"update {step['step']}/{step['max_steps']}  loss {step['loss']:.3f}"
            speed = f"gradient {step['grad_norm']:.2f}  {step['tokens_per_second']:.0f} tokens/s"
            tell(f"{progress}  {speed}  {step['seconds'] / 60:.1f} min, {step['eta_seconds'] / 60:.1f} min to go")

    return show


def tell(line: str) -> None:
    """Print a line for a person, beside the results.

    Args:
        line: What is done.
    """
    say(line, err=True)
