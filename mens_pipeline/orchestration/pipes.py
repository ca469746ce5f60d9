"""A child process of an asset, through Dagster Pipes: started, watched, ended with its run."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg

from mens_pipeline.settings import training_environment
from mens_pipeline.training.launch import run_child


def run_in_child(  # noqa: PLR0913, PLR0917 - what a process is started with
    context: dg.AssetExecutionContext,
    module: str,
    job_path: Path,
    grace_seconds: float,
    watch: Callable[[list[dict[str, Any]]], None],
    num_processes: int = 1,
) -> int:
    """Run a job in a process of its own; whatever ends the run, ends the process.

    Args:
        context: Of the asset.
        module: What runs the job.
        job_path: The job as JSON; what the process prints goes to `child.log` beside it.
        grace_seconds: How long a run that is cancelled may take to leave things in order.
        watch: Takes the events that came since it was called last, a few times a second.
        num_processes: How many work on the job together, one a device.

    Returns:
        The exit code of the process.
    """
    injector, reader = dg.PipesTempFileContextInjector(), dg.PipesTempFileMessageReader()
    with warnings.catch_warnings():
        # Dagster 1.13.27 warns of a parameter of its own in every session.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        with dg.open_pipes_session(context, injector, reader) as session:
            seen = 0

            def poll() -> None:
                nonlocal seen
                events = session.get_custom_messages()[seen:]
                seen += len(events)
                watch(list(events))

            environment = {**training_environment(num_processes), **session.get_bootstrap_env_vars()}
            log = job_path.with_name("child.log")
            return run_child(module, job_path, environment, poll, grace_seconds, log, num_processes)
