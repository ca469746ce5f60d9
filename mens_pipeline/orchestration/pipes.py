"""A child process of an asset, through Dagster Pipes: started, watched, ended with its run."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import dagster as dg

from mens_pipeline.language.visible_text import visible_text
from mens_pipeline.training.environment import training_environment
from mens_pipeline.training.launch import run_child

JOB_TAG: Final = "mens/job"
HEADLESS: Final = "headless"
"""The job tag of runs in a terminal, which shows progress and not what libraries print."""


def run_in_child(  # noqa: PLR0913, PLR0917 - what a process is started with
    context: dg.AssetExecutionContext,
    module: str,
    job_path: Path,
    grace_seconds: float,
    watch: Callable[[list[dict[str, Any]]], None],
    num_processes: int = 1,
) -> int:
    """Run a job in a process of its own, and return its exit code; whatever ends the run, ends the process.

    What it prints goes to `child.log` beside its job; `watch` takes what events came, a few times a second.
    """
    log = job_path.with_name("child.log")
    is_headless = context.run.tags.get(JOB_TAG) == HEADLESS
    injector, reader = dg.PipesTempFileContextInjector(), dg.PipesTempFileMessageReader()
    with warnings.catch_warnings():
        # Dagster 1.13.27 warns of a parameter of its own in every session.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        with dg.open_pipes_session(context, injector, reader) as session:
            seen, said = 0, log.stat().st_size if log.is_file() else 0

            def poll() -> None:
                nonlocal seen, said
                if not is_headless:
                    said = _pass_on(log, said)
                events = session.get_custom_messages()[seen:]
                seen += len(events)
                watch(list(events))

            environment = {**training_environment(num_processes), **session.get_bootstrap_env_vars()}
            return run_child(module, job_path, environment, poll, grace_seconds, log, num_processes)


def _pass_on(log: Path, said: int) -> int:
    """Write what a process has printed to stderr, which Dagster shows beside the step; return how far that is."""
    if not log.is_file():
        return said
    with log.open("rb") as content:
        content.seek(said)
        new = content.read()
    sys.stderr.write(visible_text(new.decode("utf-8", "replace")))
    return said + len(new)
