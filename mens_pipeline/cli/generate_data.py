"""`mens generate-data`: synthetic pairs."""

import json
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from mens_pipeline.cli.terminal import say
from mens_pipeline.corpus.schema.shares import share_text

_EVERY_SECONDS: Final = 5.0
"""Between two lines about how far it is."""


def generate_data(  # noqa: PLR0913 - one parameter an option
    *,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="How many pairs; exactly so many are written.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where they go, as JSON lines.")],
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")] = 0,
    corpus: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Extracted records: programs to change, and what there is already."),
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the shares go, as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the shares as one JSON document.")] = False,
) -> None:
    """Write synthetic pairs: tasks, templates, combinations, mutations and repairs, accepted by the front end.

    `config/pipeline.yaml` says which share of the rows each kind has. A task is a function with a stated behaviour: it
    was run, its prompt may show examples, and its hidden tests lie beside it in `tests`. A program with tests of its
    own is written only when they pass. Of templates, constructs of which --corpus shows least come first.

    Exit code 0: exactly N pairs are written. 1: there are not as many different ones. 2: the command was misused.
    """
    from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
    from mens_pipeline.corpus.schema.reading import read_records
    from mens_pipeline.corpus.synthesis.synthetic_corpus import write_synthetic
    from mens_pipeline.settings import PIPELINE_CONFIG, load_settings
    from mens_pipeline.storage.jsonl import open_rows, write_text

    records = []
    if corpus is not None:
        with open_rows(corpus) as lines:
            records = list(read_records(lines, corpus))
    policy = load_pipeline_config(PIPELINE_CONFIG).synthesize.model_copy(update={"limit": limit, "seed": seed})

    begun = shown = time.monotonic()

    def progress(number: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _EVERY_SECONDS:
            shown, rate = now, number / (now - begun)
            say(
                f"{number} of {limit} pairs, {rate:.0f} a second, {(limit - number) / rate / 60:.1f} min to go",
                err=True,
            )

    account = write_synthetic(output, records, policy, workers=load_settings().num_workers, progress=progress)
    text = json.dumps(account, indent=2)
    if report is not None:
        write_text(report, text + "\n")
    if as_json:
        say(text)
        return
    for kind, share in account["kinds"].items():
        say(f"{kind:<12} {share_text(share['count'], limit)}")
    say("construct         before  made")
    for name, share in account["constructs"].items():
        say(f"{name:<16} {share['before']:>7}  {share_text(share['count'], limit)}")
    drops = {"failing_tests": "a test of their own does not pass", "semantic_errors": "an error in names or types"}
    for reason, told in drops.items():
        if account[reason]:
            say(f"{sum(account[reason].values())} more were not kept: {told}", err=True)
    say(f"{account['num_pairs']} pairs in {output}")
