"""The `mens` command."""

import sys
from typing import Annotated, Final

import typer

from mens_pipeline.cli import corpus, scratch, store, telemetry
from mens_pipeline.cli.check import check
from mens_pipeline.cli.compare import compare
from mens_pipeline.cli.delivery import lineage, merge, push
from mens_pipeline.cli.eval_local import eval_local
from mens_pipeline.cli.export import export_tasks, grammar, score
from mens_pipeline.cli.promote import gate, override, promote
from mens_pipeline.cli.run import improve, run
from mens_pipeline.cli.serve import serve
from mens_pipeline.cli.synthesis import generate_data
from mens_pipeline.cli.terminal import MISUSE, REFUSED, log_line
from mens_pipeline.cli.test import run_files
from mens_pipeline.cli.train import train
from mens_pipeline.cli.upstream import AdvisingGroup, TrainCommand
from mens_pipeline.errors import MensError, RefusedError
from mens_pipeline.jobs.environment import keep_current_folder_out
from mens_pipeline.settings import PROJECT_ROOT

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
"""Extra of the package -> what it installs, and only some commands need."""

app = typer.Typer(
    name="mens",
    cls=AdvisingGroup,
    help="Turn a Vox workspace into a code model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(check)
app.command()(compare)
app.command(name="test")(run_files)
app.command()(run)
app.command(name="generate-data")(generate_data)
app.command(cls=TrainCommand)(train)
app.command(name="eval-local")(eval_local)
app.command()(gate)
app.command()(grammar)
app.command()(improve)
app.command()(lineage)
app.command()(override)
app.command()(promote)
app.command()(merge)
app.command(name="merge-weights")(scratch.merge_weights)
app.command()(push)
app.command()(score)
app.command(name="export-tasks")(export_tasks)
app.command()(serve)
app.add_typer(corpus.app)
app.add_typer(scratch.app)
app.add_typer(scratch.training_app)
app.add_typer(store.app)
app.add_typer(telemetry.app)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer's form of an option callback
    if asked:
        from importlib.metadata import version

        typer.echo(version("mens-pipeline"))
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; a refusal ends in one message and exit code 1, a mistake of the user in exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    keep_current_folder_out()
    try:
        app()
    except RefusedError as error:
        log_line(f"mens: {error}")
        sys.exit(REFUSED)
    except MensError as error:
        log_line(f"mens: {error}")
        sys.exit(MISUSE)
    except ModuleNotFoundError as error:
        extra = next((extra for extra, names in _EXTRAS.items() if error.name in names), None)
        if extra is None:
            raise

        is_checkout = (PROJECT_ROOT / "constraints.txt").exists()
        what = f'-c constraints.txt -e ".[{extra}]"' if is_checkout else f'"mens-pipeline[{extra}]"'
        log_line(f"mens: {error.name}: not installed. Run: pip install {what}")
        sys.exit(MISUSE)
