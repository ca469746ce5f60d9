"""`mens run`: the whole graph, once, without a server."""

import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mens_pipeline.cli.run_summary import called_as, summary_of
from mens_pipeline.cli.terminal import say
from mens_pipeline.language.visible_text import visible_text

REFUSED = 1
INTERRUPTED = 130


def run(  # noqa: PLR0913 - one parameter an option
    *,
    source_root: Annotated[
        Path | None,
        typer.Option(help="The Vox workspace to learn from [default: MENS_SOURCE_ROOT, else this repository's data]."),
    ] = None,
    preset: Annotated[
        str, typer.Option(metavar="NAME", help="A recipe of config/presets.yaml; `auto` picks by the GPU's memory.")
    ] = "auto",
    domain: Annotated[str | None, typer.Option(metavar="NAME", help="Which rows; config/domains.yaml.")] = None,
    force_train: Annotated[bool, typer.Option("--force-train", help="Train although nothing has changed.")] = False,
    with_training: Annotated[bool, typer.Option("--train/--no-train", help="Whether to go on to the adapter.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON document.")] = False,
) -> None:
    """Run every asset and every check once, with progress on stderr and a summary at the end.

    What has not changed is not made again: a second run trains nothing.

    Exit code 0: the adapter is promoted, or with --no-train every check passed. 1: the gate or a check refused, or a
    step failed. 2: the command was misused. 130: interrupted; run the same command to go on.
    """
    from mens_pipeline.definitions import defs  # noqa: PLC0415 - Dagster takes a second that `--help` need not wait
    from mens_pipeline.orchestration.choices import resolve_choices  # noqa: PLC0415 - likewise
    from mens_pipeline.orchestration.headless import GraphOutcome, run_graph  # noqa: PLC0415 - likewise
    from mens_pipeline.orchestration.progress import PROGRESS_LOGGER  # noqa: PLC0415 - likewise
    from mens_pipeline.orchestration.resources.compute import Compute  # noqa: PLC0415 - likewise
    from mens_pipeline.settings import load_settings  # noqa: PLC0415 - likewise

    settings = load_settings()
    if source_root is not None:
        settings = settings.model_copy(update={"source_root": source_root})
    if not settings.source_root.is_dir():
        advice = "Name a Vox workspace with --source-root or MENS_SOURCE_ROOT."
        raise typer.BadParameter(f"{settings.source_root}: no such folder. {advice}")
    if with_training:
        resolve_choices(settings, Compute().resolve(), preset=preset, domain=domain, overrides={})
    _show_progress(PROGRESS_LOGGER)
    training = {"preset": preset, "force_train": force_train, **({"domain": domain} if domain else {})}
    outcome: GraphOutcome = (
        run_graph(defs(), settings, "whole_graph", training)
        if with_training
        else run_graph(defs(), settings, "train_set")
    )
    if outcome.is_interrupted:
        say("interrupted; run the same again: what is done is reused", err=True)
        raise typer.Exit(INTERRUPTED)
    is_good = outcome.is_promoted if with_training else outcome.success
    if as_json:
        typer.echo(json.dumps(asdict(outcome), indent=2))
    else:
        for check in outcome.checks:
            say(f"{'passed ' if check.passed else 'FAILED ' if check.blocks else 'warning'}  {check.name}")
            for key, value in check.figures.items() if not check.passed else ():
                say(f"         {key}: {value}")
        for line in summary_of(outcome.figures, is_good=is_good, command=called_as()):
            say(line)
        verdict = "promoted" if outcome.is_promoted else "passed" if is_good else "refused"
        say(f"{verdict} in {outcome.seconds:.1f} s, run {outcome.run_id}")
    raise typer.Exit(0 if is_good else REFUSED)


class _Line(logging.Formatter):
    """A line of progress; a message may quote what a program or a model wrote."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_text(super().format(record))


def _show_progress(logger_name: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line("%(asctime)s  %(message)s", "%H:%M:%S"))
    logger = logging.getLogger(logger_name)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers = [handler]
