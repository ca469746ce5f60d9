"""`mens telemetry`: what agents were asked, as training data."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic import ValidationError

from mens_pipeline.cli.options import REQUIRED, declare_options, option, switch
from mens_pipeline.cli.terminal import show, write_report
from mens_pipeline.cli.upstream import ListingGroup
from mens_pipeline.corpus.schema.account import at_least_one, share_text
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.validation import errors_in

if TYPE_CHECKING:
    from mens_pipeline.corpus.telemetry.table import TelemetryAccount, TelemetryQuery


app = typer.Typer(
    name="telemetry", cls=ListingGroup, help="From the telemetry of agents to training data.", no_args_is_help=True
)


@app.command(name="import")
@declare_options
def import_rows(
    *,
    output: Path = option(REQUIRED, "Where the pairs go, as JSON lines.", "-o", "--output", metavar="FILE"),
    url: str | None = option(
        None,
        "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE [default: MENS_TELEMETRY_URL, which other "
        "users of the machine cannot read].",
        metavar="URL",
    ),
    table: str = option("AgentTelemetry", "Table or view, perhaps SCHEMA.NAME.", metavar="NAME"),
    query_column: str = option("query", "What was asked.", metavar="NAME"),
    response_column: str = option("optimal_response", "The best completion.", metavar="NAME"),
    rating_column: str | None = option(None, "A rating from 1 to 5; rows without one count as 4.", metavar="NAME"),
    order_column: str | None = option(
        None, "What decides which rows are newest; else the key of the table.", metavar="NAME"
    ),
    limit: int = option(5000, "Rows to read at most, newest first.", ge=1, le=1_000_000),
    report: Path | None = option(None, "Where the counts go, as JSON.", metavar="FILE"),
    as_json: bool = switch("Print the counts as one JSON document.", "--json"),
) -> None:
    """Make training pairs of a table of queries and optimal responses, in SQLite or PostgreSQL.

    Keys, tokens, passwords, addresses, numbers of phones and cards, and names in home paths are redacted before
    anything is written. The database is only read. What was seen is what was kept plus what was dropped.

    Exit code 0: the pairs are written. 1: no row trains, and nothing is written. 2: the command was misused.
    """
    from mens_pipeline.corpus.telemetry.table import TelemetryAccount, read_telemetry, telemetry_pairs

    columns = {"query_column": query_column, "response_column": response_column, "rating_column": rating_column}
    query = _query(url, table=table, **columns, order_column=order_column, limit=limit)
    account = TelemetryAccount()
    pairs = telemetry_pairs(read_telemetry(query), account, table)
    written = write_jsonl(output, at_least_one(pairs, account, table, "Check --table and the columns."))
    account.check()
    counts = {"table": table, **account.as_json()}
    write_report(report, counts)
    show(counts, [*_lines(account), f"{written} pairs in {output}"], as_json=as_json)


def _query(url: str | None, **parts: Any) -> "TelemetryQuery":

    from mens_pipeline.corpus.telemetry.table import TelemetryQuery

    source = url or load_settings().telemetry_url
    if not source:
        raise ConfigurationError("telemetry: no database is named. Give --url, or set MENS_TELEMETRY_URL.")
    try:
        return TelemetryQuery.model_validate({"url": source, **parts})
    except ValidationError as error:
        raise ConfigurationError(f"telemetry: {errors_in(error)}. Correct these options.") from error


def _lines(account: "TelemetryAccount") -> Iterator[str]:
    yield f"kept {share_text(account.kept, account.seen)}"
    for title, counts in (("lane", account.lanes), ("dropped", account.dropped), ("redacted", account.redactions)):
        for key, count in sorted(counts.items()):
            yield f"{title:<8} {count:>6}  {key}"
