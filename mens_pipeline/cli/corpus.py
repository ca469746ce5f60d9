"""`mens corpus`: from a workspace to training data, a step at a time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from mens_pipeline.corpus.drops import Drop, Tally, Unit
from mens_pipeline.corpus.shares import share_text

app = typer.Typer(name="corpus", help="From a Vox workspace to training data.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def extract(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A Vox workspace, or a folder in one.")],
    *,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where the records go, as JSON lines.")
    ],
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the account goes, with each thing that was dropped.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as one JSON document.")] = False,
) -> None:
    """Extract records from the `.vox` files and Markdown pages below a folder.

    A program trains unless it says no; a page only if it says `training_eligible: true`. Whatever does not train is
    counted with its reason, and what was seen is what was kept plus what was dropped.

    Exit code 0: the records are written. 2: the command was misused.
    """
    from mens_pipeline.corpus.extract import commit_of, extract_workspace  # noqa: PLC0415 - Markdown and YAML can wait
    from mens_pipeline.corpus.extracted_corpus import account, drop_fields  # noqa: PLC0415 - likewise
    from mens_pipeline.corpus.jsonl import write_jsonl  # noqa: PLC0415 - likewise

    tally = Tally()
    drops: list[Drop] = []
    written = write_jsonl(output, extract_workspace(folder, tally, drops.append, commit_of(folder)))
    assert tally.adds_up(), "something was neither kept nor dropped"  # noqa: S101 - our own impossibility
    counts = account(tally, written)
    if report is not None:
        details = [drop_fields(drop) for drop in drops]
        report.write_text(json.dumps({**counts, "drops": details}, indent=2) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(counts, indent=2))
    else:
        for line in _lines(tally, written, output):
            typer.echo(line)


def _lines(tally: Tally, written: int, output: Path) -> Iterator[str]:
    for unit in Unit:
        yield f"{unit:<10} kept {share_text(tally.kept[unit], tally.seen[unit])}"
        for reason, count in tally.reasons(unit).items():
            yield f"{'':<10} {count:>6}  {reason}"
    yield f"{written} records in {output}"
