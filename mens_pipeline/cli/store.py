"""`mens store`: prune, rank and show the artifacts of the pipeline, and forget files."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mens_pipeline.cli.options import argument, declare_options, option, switch
from mens_pipeline.cli.terminal import log_line, print_line
from mens_pipeline.cli.upstream import ListingGroup
from mens_pipeline.settings import PIPELINE_CONFIG, RETENTION, link_pages_at, load_settings, open_store

if TYPE_CHECKING:
    from mens_pipeline.delivery.retention import RetentionPlan


app = typer.Typer(name="store", cls=ListingGroup, help="Inspect, serve and remove artifacts.", no_args_is_help=True)


@app.command()
@declare_options
def prune(
    *,
    apply: bool = switch("Delete what the plan lists."),
    as_json: bool = switch("Print the plan as one JSON document.", "--json"),
) -> None:
    """Print which artifacts config/retention.yaml keeps and deletes and why; delete them with --apply.

    The latest artifacts, the champion, its history, and the verdicts, figures, adapters and train sets that these or a
    kept verdict or adapter were made from always stay. The age of an artifact counts from its last use.

    Exit code 0: done. 2: the command was misused.
    """
    from mens_pipeline.delivery import retention

    def show(plan: "RetentionPlan") -> None:
        print_line(_format_json(plan, applied=apply) if as_json else _format_text(plan, applied=apply))

    store = open_store(load_settings())
    retention.prune(store, retention.load_retention(RETENTION), time.time(), apply=apply, show=show)


@app.command()
@declare_options
def leaderboard(
    *,
    output: Path | None = option(None, "Also write the figures: .csv or .parquet.", "-o", "--output", metavar="FILE"),
) -> None:
    """Print a Markdown table of all evaluated adapters, best first: recipe, minutes, figures, commits.

    Adapters are ranked by the tasks whose hidden tests they pass, then by parse rate.

    Exit code 0: printed. 1: nothing was evaluated yet. 2: the command was misused.
    """
    from mens_pipeline.promotion.report.side_by_side import read_leaderboard

    board = read_leaderboard(open_store(load_settings()))
    if output is not None:
        board.write(output)
    print_line(board.format().rstrip("\n"))


@app.command()
@declare_options
def forget(
    *,
    what: str = argument("A file or folder of the workspace, a commit of it, or an SPDX id.", metavar="WHAT"),
    reason: str = option("", "Reason, for readers of the list.", metavar="TEXT"),
    dry_run: bool = switch("Write nothing."),
) -> None:
    """Exclude a file, all files that a commit changed, or a licence from training; list the models that saw them.

    Adds entries to config/forgotten.yaml. The next run leaves these files and copies of them out of corpus, train set
    and held-out pairs. The page and card of a promoted model that saw one say so, and how to train without it.

    Exit code 0: done. 1: no model saw such a file, and the workspace has none. 2: the command was misused.
    """
    from mens_pipeline.corpus.extract.forgotten import FORGOTTEN
    from mens_pipeline.delivery.forget import add_entries, plan_forgetting
    from mens_pipeline.promotion.history import champion_key

    settings, path = load_settings(), PIPELINE_CONFIG.with_name(FORGOTTEN)
    store = open_store(settings)
    plan, champion = plan_forgetting(store, settings.source_root, what, reason), champion_key(store)
    for entry in plan.entries:
        print_line(f"forgotten  {entry.path or entry.licence}")
    for model in plan.seen_by:
        print_line(
            f"seen by    {model.kind:<16}  {model.key[:12]}  {'champion' if model.key == champion else model.name}"
        )
    if not plan.seen_by:
        print_line(f"seen by    no model in {store.root}")
    if dry_run:
        print_line(f"dry run: {path} is unchanged")
        return
    print_line(f"written    {len(add_entries(path, plan.entries))} new entries in {path}; commit it")
    print_line("next       mens run trains without it")


@app.command()
@declare_options
def pages(
    *,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Command to run; the server ends with it.")
    ] = None,
    port: int = option(8001, "Port on this machine.", metavar="PORT", ge=0, le=65535),
) -> None:
    """Serve the report pages of verdicts on this machine until interrupted.

    Browsers do not open local files from the Dagster UI. COMMAND runs with MENS_STORE_PAGES set to this server, unless
    you set it yourself, so it can link each report.

    Exit code 0: ended. 2: the command was misused. Otherwise the exit code of COMMAND.
    """
    from mens_pipeline.corpus.curate.pipeline_config import load_source_policy
    from mens_pipeline.serving.pages import ADDRESS, PageServer, open_socket

    at, settings, parent = open_socket(port), load_settings(), os.getpid()
    address = f"http://{ADDRESS}:{at.getsockname()[1]}"
    log_line(f"pages of verdicts at {address}/benchmark_gate/KEY/report.html")
    if command and os.fork():
        at.close()
        link_pages_at(address)
        try:
            os.execvp(command[0], command)  # noqa: S606 - what a person typed
        except OSError as error:
            raise typer.BadParameter(f"{command[0]}: {error.strerror}.") from error
    with suppress(KeyboardInterrupt):
        parent_id, policy = parent if command else None, lambda: load_source_policy(PIPELINE_CONFIG)
        PageServer(at, open_store(settings), parent_id, policy).serve_forever()


def _format_text(plan: "RetentionPlan", *, applied: bool) -> str:
    lines = []
    for decision in plan.decisions:
        item, label = decision.item, f"{decision.item.name}: " if decision.item.name else ""
        place = f"{decision.action:<6}  {item.kind:<16}  {item.key[:12]:<12}"
        lines.append(f"{place}  {_size(item.num_bytes):>9}  {label}{decision.reason}")
    share = f"{len(plan.removed)}/{len(plan.decisions)}, {_size(plan.num_removed_bytes)} of {_size(plan.num_bytes)}"
    verdict = f"removing {share}" if applied else f"to remove: {share}; --apply removes them"
    return "\n".join([*lines, verdict])


def _format_json(plan: "RetentionPlan", *, applied: bool) -> str:
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
