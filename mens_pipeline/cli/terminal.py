"""Output for people, and the progress of jobs. Untrusted text is escaped before it reaches a terminal."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import typer

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.jobs.device import Device, DeviceChoice
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.progress import Follower
from mens_pipeline.language import visible_text
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.settings import Settings, find_device
from mens_pipeline.storage.jsonl import write_text
from mens_pipeline.training.telemetry_log import format_plan, step_of

REFUSED: Final = 1
MISUSE: Final = 2
INTERRUPTED: Final = 130
"""Exit code after SIGINT, by the convention of shells: 128 plus the number of the signal."""


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line for people; control characters become visible marks.

    Print coloured text with `typer.echo` instead, from parts that were escaped.
    """
    typer.echo(visible_text(text), err=err)


def log_line(line: str) -> None:
    """Print progress or a note on stderr, apart from results."""
    print_line(line, err=True)


def show(document: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result as one JSON document or as lines."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        print_line(line)


def print_json(document: Any) -> None:
    """Print a JSON document, indented."""
    typer.echo(json.dumps(document, indent=2))


def refuse_repeated(*files: Path | None) -> None:
    """Raise `ConfigurationError` if a file is named twice: one result would replace the other, or its input."""
    places = [file.resolve() for file in files if file is not None]
    for place in places:
        if places.count(place) > 1:
            raise ConfigurationError(f"{place}: named for two purposes. Name another file for one of them.")


def write_report(path: Path | None, document: dict[str, Any]) -> None:
    """Write a JSON document if a file was named for it."""
    if path is not None:
        write_text(path, json.dumps(document, indent=2) + "\n")


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """On Ctrl-C, end the command with a line of advice instead of a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        log_line(f"interrupted; {advice}")
        raise typer.Exit(INTERRUPTED) from None


def align_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


_EVERY_SECONDS: Final = 5.0


def choose_device(choice: DeviceChoice, settings: Settings, *, trains: bool = False) -> Device:
    """Return the device of a job and print it."""
    device = find_device(choice, settings, trains=trains)
    log_line(f"device {device.kind}: {device.name}")
    return device


def run_and_show(job_path: Path, show: Callable[[dict[str, Any]], None], **how: Any) -> int:
    """Run a job as `run_job` does, pass each event to `show`, and return the exit code."""
    return run_job(job_path, Follower(job_path.with_name(TELEMETRY), show).poll, **how)


def show_steps() -> Callable[[dict[str, Any]], None]:
    """Return a callback that prints the progress of a training, no more than one line per second."""
    shown = 0.0

    def show(line: dict[str, Any]) -> None:
        nonlocal shown
        step = line["payload"]
        if line["event"] == "train_start":
            first = step_of(step["resumed_from"])
            log_line(f"training from step {first} of {step['planned_steps']}")
            if "computed_by" in step:  # the scratch lane has none
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
    """Return a callback that prints the number of finished completions every few seconds and when a model is done."""
    from mens_pipeline.inference.generation import progress_of

    shown = 0.0

    def show(event: dict[str, Any]) -> None:
        nonlocal shown
        completion = event["payload"]
        if time.monotonic() - shown > _EVERY_SECONDS or completion["num_done"] == completion["num_answers"]:
            shown = time.monotonic()
            log_line(f"{completion['model']}: {progress_of(completion)}")

    return show
