"""`mens store`: what the pipeline keeps, and what it deletes."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mens_pipeline.cli.options import declare_options, option, switch
from mens_pipeline.cli.terminal import log_line, print_line
from mens_pipeline.cli.upstream import ListingGroup
from mens_pipeline.configured import open_store
from mens_pipeline.settings import RETENTION, link_pages_at, load_settings

if TYPE_CHECKING:
    from mens_pipeline.delivery.retention import RetentionDecision, RetentionPlan


app = typer.Typer(name="store", cls=ListingGroup, help="What the pipeline keeps.", no_args_is_help=True)


@app.command()
@declare_options
def prune(
    *,
    apply: bool = switch("Delete what the plan names; else nothing is."),
    as_json: bool = switch("Print the plan as one JSON document.", "--json"),
) -> None:
    """Print what config/retention.yaml keeps and deletes, with a reason for each, and with --apply delete it.

    What `latest` names, the champion, its history, and what verdicts and adapters that are kept rest on always stay.
    Age counts from the last run that made an artifact or took it up.

    Exit code 0: done. 2: the command was misused.
    """
    from mens_pipeline.delivery import retention

    def show(plan: "RetentionPlan") -> None:
        print_line(_json(plan, applied=apply) if as_json else _text(plan, applied=apply))

    store = open_store(load_settings())
    retention.prune(store, retention.load_retention(RETENTION), time.time(), apply=apply, show=show)


@app.command()
@declare_options
def leaderboard(
    *,
    output: Path | None = option(None, "Also write the figures, as CSV or Parquet.", "-o", "--output", metavar="FILE"),
) -> None:
    """Print the adapters that were evaluated as a table in Markdown, the best first: recipe, minutes, figures, commits.

    The best passes the hidden tests of most tasks; then counts how many of its completions parse. The ending of FILE,
    `.csv` or `.parquet`, says what is written.

    Exit code 0: printed. 1: nothing was evaluated yet. 2: the command was misused.
    """
    from mens_pipeline.promotion.leaderboard import read_leaderboard

    board = read_leaderboard(open_store(load_settings()))
    if output is not None:
        board.write(output)
    print_line(board.format().rstrip("\n"))


@app.command()
@declare_options
def pages(
    *,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="What runs beside it; it ends with that.")
    ] = None,
    port: int = option(8001, "On this machine alone.", metavar="PORT", ge=0, le=65535),
) -> None:
    """Serve the report pages of verdicts on this machine, until it is interrupted.

    A browser opens no file from a page of the Dagster UI. With a command, MENS_STORE_PAGES names this server to it,
    unless it names another, and the UI links each report: mens store pages -- dagster dev -m mens_pipeline.definitions.

    Exit code 0: ended. 2: the command was misused. Else that of the command.
    """
    from mens_pipeline.delivery.pages import ADDRESS, PageServer, open_socket

    at, settings, parent = open_socket(port), load_settings(), os.getpid()
    address = f"http://{ADDRESS}:{at.getsockname()[1]}"
    log_line(f"pages of verdicts at {address}/benchmark_gate/KEY/report.html")
    if command and os.fork():
        at.close()
        link_pages_at(address)
        _become(command)
    with suppress(KeyboardInterrupt):
        PageServer(at, open_store(settings), parent if command else None).serve_forever()


def _become(command: list[str]) -> NoReturn:
    """Let another program take the place of this one, with its signals and its exit code."""
    try:
        os.execvp(command[0], command)  # noqa: S606 - what a person typed
    except OSError as error:
        raise typer.BadParameter(f"{command[0]}: {error.strerror}.") from error


def _text(plan: "RetentionPlan", *, applied: bool) -> str:
    lines = [
        f"{d.action:<6}  {d.item.kind:<16}  {d.item.key[:12]:<12}  {_size(d.item.num_bytes):>9}  {_label(d)}{d.reason}"
        for d in plan.decisions
    ]
    share = f"{len(plan.removed)}/{len(plan.decisions)}, {_size(plan.num_removed_bytes)} of {_size(plan.num_bytes)}"
    verdict = f"removing {share}" if applied else f"to remove: {share}; --apply removes them"
    return "\n".join([*lines, verdict])


def _label(decision: "RetentionDecision") -> str:
    return f"{decision.item.name}: " if decision.item.name else ""


def _json(plan: "RetentionPlan", *, applied: bool) -> str:
    rows: list[dict[str, Any]] = [
        {
            "action": decision.action,
            "kind": decision.item.kind,
            "key": decision.item.key,
            "name": decision.item.name,
            "bytes": decision.item.num_bytes,
            "reason": decision.reason,
        }
        for decision in plan.decisions
    ]
    totals = {"applied": applied, "bytes": plan.num_bytes, "bytes_removed": plan.num_removed_bytes}
    return json.dumps({**totals, "artifacts": rows}, indent=2)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e5 else f"{num_bytes / 1e3:.1f} kB"  # noqa: PLR2004 - a unit
