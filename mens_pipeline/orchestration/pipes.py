"""A child process of an asset, through Dagster Pipes: started, watched, ended with its run."""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import dagster as dg
from dagster_pipes import PipesDefaultMessageWriter

from mens_pipeline.language.visible_text import visible_text
from mens_pipeline.training.environment import training_environment
from mens_pipeline.training.launch import run_child

JOB_TAG: Final = "mens/job"
HEADLESS: Final = "headless"
"""The job tag of runs in a terminal, which shows progress and not what libraries print."""

_PAUSE_SECONDS: Final = 0.05


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
    injector, reader = dg.PipesTempFileContextInjector(), MessageReader()
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


class MessageReader(dg.PipesMessageReader):
    """Reads messages as lines of a temporary file, whole ones alone.

    Dagster's own reader (1.13.27) takes a half-written line for a whole one, prints a traceback and reads no more.
    """

    @contextmanager
    def read_messages(self, handler: dg.PipesMessageHandler) -> Iterator[dict[str, Any]]:
        """Pass messages on until the session ends; yields where a process shall write them."""
        with tempfile.TemporaryDirectory() as folder:
            path, has_ended = Path(folder, "messages"), Event()
            path.touch()
            thread = Thread(target=_read, args=(path, handler, has_ended), daemon=True)
            thread.start()
            try:
                yield {PipesDefaultMessageWriter.FILE_PATH_KEY: str(path)}
            finally:
                has_ended.set()
                thread.join()

    def no_messages_debug_text(self) -> str:
        """Say where messages were looked for."""
        return "Attempted to read messages from a local temporary file."


def _read(path: Path, handler: dg.PipesMessageHandler, has_ended: Event) -> None:
    rest, is_last = b"", False
    with path.open("rb") as content:
        while not is_last:
            is_last = has_ended.wait(_PAUSE_SECONDS)  # asked before reading, so that nothing is left
            *lines, rest = (rest + content.read()).split(b"\n")
            for line in lines:
                handler.handle_message(json.loads(line))


def _pass_on(log: Path, said: int) -> int:
    """Write what a process has printed to stderr, which Dagster shows beside the step; return how far that is."""
    if not log.is_file():
        return said
    with log.open("rb") as content:
        content.seek(said)
        new = content.read()
    sys.stderr.write(visible_text(new.decode("utf-8", "replace")))
    return said + len(new)
