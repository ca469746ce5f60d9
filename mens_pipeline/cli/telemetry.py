"""`mens telemetry`: what agents were asked, as training data."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mens_pipeline.cli.terminal import say
from mens_pipeline.corpus.schema.shares import share_text
from mens_pipeline.errors import ConfigurationError, RefusedError

if TYPE_CHECKING:
    from mens_pipeline.corpus.schema.training_pair import TrainingPair
    from mens_pipeline.corpus.telemetry.table import TelemetryQuery, TelemetryTally

app = typer.Typer(name="telemetry", help="From the telemetry of agents to training data.", no_args_is_help=True)


@app.command(name="import")
def import_rows(  # noqa: PLR0913 - one parameter an option
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the pairs go, as JSON lines.")],
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE [default: MENS_TELEMETRY_URL, which other "
            "users of the machine cannot read].",
            show_default=False,
        ),
    ] = None,
    table: Annotated[str, typer.Option(metavar="NAME", help="Table or view, perhaps SCHEMA.NAME.")] = "AgentTelemetry",
    query_column: Annotated[str, typer.Option(metavar="NAME", help="What was asked.")] = "query",
    response_column: Annotated[str, typer.Option(metavar="NAME", help="The best answer.")] = "optimal_response",
    rating_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="A rating from 1 to 5; rows without one count as 4.")
    ] = None,
    order_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="What decides which rows are newest; else the key of the table.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Rows to read at most, newest first.")] = 5000,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the counts go, as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as one JSON document.")] = False,
) -> None:
    """Make training pairs of a table of queries and optimal responses, in SQLite or PostgreSQL.

    Keys, tokens, passwords, addresses, numbers of phones and cards, and names in home paths are redacted before
    anything is written. The database is only read. What was seen is what was kept plus what was dropped.

    Exit code 0: the pairs are written. 1: no row trains, and nothing is written. 2: the command was misused.
    """
    from mens_pipeline.corpus.telemetry.table import (
        TelemetryTally,
        read_telemetry,
        telemetry_pairs,
    )
    from mens_pipeline.storage.jsonl import write_jsonl, write_text

    query = _query(
        url,
        table=table,
        query_column=query_column,
        response_column=response_column,
        rating_column=rating_column,
        order_column=order_column,
        limit=limit,
    )
    tally = TelemetryTally()
    pairs = telemetry_pairs(read_telemetry(query), tally, table)
    written = write_jsonl(output, _at_least_one(pairs, tally, table))
    assert tally.adds_up(), "a row was neither kept nor dropped"  # noqa: S101 - our own impossibility
    counts = {"table": table, **tally.as_json()}
    if report is not None:
        write_text(report, json.dumps(counts, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(counts, indent=2))
        return
    for line in _lines(tally):
        say(line)
    say(f"{written} pairs in {output}")


def _query(url: str | None, **parts: Any) -> "TelemetryQuery":
    from pydantic import ValidationError

    from mens_pipeline.corpus.telemetry.table import TelemetryQuery
    from mens_pipeline.settings import load_settings
    from mens_pipeline.storage.validation import errors_in

    source = url or load_settings().telemetry_url
    if not source:
        raise ConfigurationError("telemetry: no database is named. Give --url, or set MENS_TELEMETRY_URL.")
    try:
        return TelemetryQuery.model_validate({"url": source, **parts})
    except ValidationError as error:
        raise ConfigurationError(f"telemetry: {errors_in(error)}. Correct these options.") from error


def _at_least_one(pairs: Iterator["TrainingPair"], tally: "TelemetryTally", table: str) -> Iterator["TrainingPair"]:
    """Yield the pairs; raise where there is none, which leaves the target as it was."""
    yield from pairs
    if not tally.num_kept:
        dropped = ", ".join(f"{count} {reason}" for reason, count in tally.dropped.items()) or "the table is empty"
        advice = "Check --table and the columns."
        raise RefusedError(f"{table}: none of {tally.seen} rows trains: {dropped}. {advice}")


def _lines(tally: "TelemetryTally") -> Iterator[str]:
    yield f"kept {share_text(tally.num_kept, tally.seen)}"
    for title, counts in (("lane", tally.kept), ("dropped", tally.dropped), ("redacted", tally.redactions)):
        for key, count in sorted(counts.items()):
            yield f"{title:<8} {count:>6}  {key}"
