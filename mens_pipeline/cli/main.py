"""The `mens` command."""

import errno
import sqlite3
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer

from mens_pipeline.cli import corpus, scratch, store
from mens_pipeline.cli.check import check, run_files
from mens_pipeline.cli.compare import compare
from mens_pipeline.cli.delivery import lineage, merge, push
from mens_pipeline.cli.demo import demo, generate
from mens_pipeline.cli.eval_local import eval_local, replay
from mens_pipeline.cli.export import export_tasks, grammar, score
from mens_pipeline.cli.promote import gate, override, promote
from mens_pipeline.cli.run import plan, run
from mens_pipeline.cli.serve import serve
from mens_pipeline.cli.synthesis import generate_data
from mens_pipeline.cli.terminal import MISUSE, REFUSED, log_line
from mens_pipeline.cli.train import train
from mens_pipeline.cli.upstream import AdvisingGroup
from mens_pipeline.errors import DiskError, MensError, RefusedError, describe_machine_problem, how_to_install
from mens_pipeline.jobs.environment import keep_current_folder_out
from mens_pipeline.settings import load_settings, pipeline_commit
from mens_pipeline.storage.files import disk_error, is_full

_EXTRAS: Final = {
    "train": (
        "accelerate",
        "bitsandbytes",
        "datasets",
        "gguf",
        "huggingface_hub",
        "peft",
        "torch",
        "transformers",
        "trl",
    ),
    "serve": ("fastapi", "prometheus_client", "uvicorn"),
}
"""Extra of the package -> modules that it installs for some commands."""

_MAKE_ROOM: Final = "Make room there, or set DAGSTER_HOME to a disk with free space, and run again."
_LET_WRITE: Final = "Make it writable, or set DAGSTER_HOME to a writable folder, and run again."
_SQLITE_DISK: Final = {
    "database or disk is full": _MAKE_ROOM,
    "disk I/O error": _MAKE_ROOM,
    "attempt to write a readonly database": _LET_WRITE,
    "unable to open database file": _LET_WRITE,
}
"""Message of SQLite about a disk -> advice."""

app = typer.Typer(
    name="mens",
    cls=AdvisingGroup,
    help="Turn a Vox workspace into a code model.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_BY_USE: Final[Mapping[str, Mapping[str, Callable[..., Any] | typer.Typer]]] = {
    "Try": {"demo": demo, "check": check, "test": run_files},
    "Run": {
        "run": run,
        "plan": plan,
        "train": train,
        "generate-data": generate_data,
        "corpus": corpus.app,
        "telemetry": corpus.telemetry_app,
    },
    "Evaluate": {
        "eval-local": eval_local,
        "compare": compare,
        "replay": replay,
        "gate": gate,
        "override": override,
        "score": score,
        "export-tasks": export_tasks,
    },
    "Use": {"promote": promote, "serve": serve, "generate": generate, "merge": merge, "push": push},
    "Inspect": {"lineage": lineage, "store": store.app, "grammar": grammar},
    "From scratch (a side branch)": {
        "scratch": scratch.app,
        "training": scratch.training_app,
        "merge-weights": scratch.merge_weights,
    },
}
"""Heading in the help -> its commands, in order."""
for _heading, _commands in _BY_USE.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_heading)
        else:
            app.command(name=_name, rich_help_panel=_heading)(_command)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer's form of an option callback
    if asked:
        from importlib.metadata import version

        commit = pipeline_commit()
        typer.echo(version("mens-pipeline") + (f" (commit {commit[:12]})" if commit else ""))
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version, and the commit of a checkout, and exit.",
            is_eager=True,
            callback=_print_version,
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. A refusal prints one message and exits with 1, a mistake of the user with 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    keep_current_folder_out()
    try:
        app()
    except (RefusedError, DiskError) as error:
        log_line(f"mens: {error}")
        sys.exit(REFUSED)
    except MensError as error:
        log_line(f"mens: {error}")
        sys.exit(MISUSE)
    except ModuleNotFoundError as error:
        extra = next((extra for extra, names in _EXTRAS.items() if error.name in names), None)
        if extra is None:
            raise
        log_line(f"mens: {error.name}: not installed. {how_to_install(extra)}")
        sys.exit(MISUSE)
    except PermissionError as error:  # a store of another user, or a stricter umask
        place = error.filename or "a file"
        log_line(f"mens: {place}: {error.strerror}. Give this user read and write access, or name another one.")
        sys.exit(MISUSE)
    except Exception as error:
        problem = _machine_problem(error)
        if problem is None:
            raise
        log_line(f"mens: {problem}")
        sys.exit(REFUSED)


def _machine_problem(error: BaseException | None) -> str | None:
    """Return a message with advice if an error or its cause is a problem of the machine, else None.

    SQLite and SQLAlchemy give neither error number nor file; the database is Dagster's. Only their errors count the
    error that was being handled as a cause; for others it may be unrelated.
    """
    while error is not None:
        if isinstance(error, OSError) and (is_full(error) or error.errno in {errno.EROFS, errno.EIO}):
            return str(disk_error(error, "a disk", "Make sure it has room and is writable, and run the command again."))
        if isinstance(getattr(error, "orig", error), sqlite3.OperationalError):
            found = next((pair for pair in _SQLITE_DISK.items() if pair[0] in str(error)), None)
            if found is not None:
                return f"{load_settings().dagster_home}: {found[0]}. {found[1]}"
        if problem := describe_machine_problem(error):
            return problem
        is_of_sqlite = isinstance(error, sqlite3.Error) or type(error).__module__.startswith("sqlalchemy.")
        before = error.__context__ if is_of_sqlite and not error.__suppress_context__ else None
        error = error.__cause__ or before
    return None
