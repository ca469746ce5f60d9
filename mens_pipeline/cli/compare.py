"""`mens compare`: what two recipes came to, side by side."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mens_pipeline.cli.terminal import say, tell

if TYPE_CHECKING:
    from mens_pipeline.promotion.report.compare import ComparedRow, Side

_WIDEST: Final = 24
"""Characters of the name of a recipe above its column."""


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A recipe that was run, or the id of a run.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the page goes.")] = Path(
        "compare.html"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as one JSON document.")] = False,
) -> None:
    """Lay what two recipes came to side by side: scores, paired differences, and every answer on a page.

    Of a recipe, the newest run that evaluated an adapter counts, of `mens run` or of the UI. Differences are those of B
    less those of A over the requests that both were asked, with the exact paired test of the gate's report.

    Exit code 0: compared. 1: nothing is there to compare. 2: the command was misused.
    """
    from mens_pipeline.configured import open_store  # noqa: PLC0415 - likewise
    from mens_pipeline.orchestration.evaluations import side_called  # noqa: PLC0415 - `--help` need not wait
    from mens_pipeline.orchestration.instance import open_instance  # noqa: PLC0415 - likewise
    from mens_pipeline.promotion.report.compare import (  # noqa: PLC0415 - likewise
        compare_page,
        compared_rows,
        notes_on,
    )
    from mens_pipeline.settings import load_settings  # noqa: PLC0415 - likewise

    settings = load_settings()
    with open_instance(settings.dagster_home) as instance:
        one, other = (side_called(name, instance, open_store(settings)) for name in (first, second))
    rows, notes = compared_rows(one, other), notes_on(one, other)
    try:
        output.write_text(compare_page(one, other), encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{output}: {error.strerror}. Name a file that you may write with -o.") from error
    if as_json:
        typer.echo(
            json.dumps({"first": first, "second": second, "notes": notes, "rows": [*map(_json, rows)]}, indent=2)
        )
    else:
        for line in _table((one, other), rows):
            say(line)
    for note in notes:
        tell(note)
    tell(f"page {output}")


def _json(row: "ComparedRow") -> dict[str, object]:
    rates = [rate.model_dump() for rate in row.rates]
    return {**asdict(row), "rates": rates, "tone": str(row.tone)}


def _table(sides: "tuple[Side, Side]", rows: "Sequence[ComparedRow]") -> Iterator[str]:
    """Yield a line for each figure: both rates, the difference, and what it is worth."""
    cells = [["", *(_short(side.name) for side in sides), "difference", ""]]
    cells += [[row.label, *(rate.short for rate in row.rates), row.difference, row.p_value] for row in rows]
    facts = [
        [side.results.subject.adapter_sha256[:12], side.results.subject.base_model, side.verdict] for side in sides
    ]
    cells += [[name, *values, "", ""] for name, *values in zip(("adapter", "base", "verdict"), *facts, strict=True)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def _short(name: str) -> str:
    return name if len(name) <= _WIDEST else f"{name[: _WIDEST - 3]}..."
