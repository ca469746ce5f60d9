"""`mens corpus`: from a workspace to training data, a step at a time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from mens_pipeline.cli.corpus_evol import evol
from mens_pipeline.cli.corpus_mix import mix, stats
from mens_pipeline.cli.terminal import say
from mens_pipeline.cli.upstream import CorpusGroup
from mens_pipeline.corpus.schema.drops import Drop, Tally, Unit, account, drop_fields
from mens_pipeline.corpus.schema.shares import share_text
from mens_pipeline.errors import RefusedError

app = typer.Typer(name="corpus", cls=CorpusGroup, help="From a Vox workspace to training data.", no_args_is_help=True)
app.command()(mix)
app.command()(evol)
app.command()(stats)


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
    counted with its reason, and what was seen is what was kept plus what was dropped. Folders of a workspace with an
    `examples.ssot.v1.yaml` may be extracted into one file one by one: records of the others stay while their files are
    as they were, and are counted with the reason when they leave. A file with a row that is no record is left as it is.

    Exit code 0: the records are written. 1: the file holds a row that is no record. 2: the command was misused.
    """
    from mens_pipeline.corpus.extract.carried_records import CarriedRecords, carried_records
    from mens_pipeline.corpus.extract.checkout import commit_of
    from mens_pipeline.corpus.extract.source_roots import find_source_roots
    from mens_pipeline.corpus.extract.workspace import extract_workspace
    from mens_pipeline.settings import load_settings
    from mens_pipeline.storage.jsonl import write_digest, write_lines, write_text

    tally = Tally()
    drops: list[Drop] = []
    roots = find_source_roots(folder)
    workspace = roots.workspace or folder
    workers = load_settings().num_workers
    governed = roots.workspace is not None
    carried = carried_records(output, folder, workspace, roots) if governed else CarriedRecords()

    def lines() -> Iterator[str]:
        yield from carried.lines
        for outcome in extract_workspace(folder, commit_of(folder), workers=workers, workspace=workspace):
            outcome.count(tally)
            drops.extend(outcome.drops)
            yield from outcome.lines

    written = write_lines(output, lines()) - len(carried.lines)
    if carried.lines:
        say(f"{len(carried.lines)} records of other folders of {workspace} stay in {output}", err=True)
    for reason, count in carried.left.most_common():
        say(f"{count} records of other folders of {workspace} leave {output}: {reason}", err=True)
    assert tally.adds_up(), "something was neither kept nor dropped"  # noqa: S101 - our own impossibility
    digest = write_digest(output)
    counts = {**account(tally, written), "other_folders": carried.account(), "output_sha256": digest}
    if report is not None:
        details = [drop_fields(drop) for drop in drops]
        write_text(report, json.dumps({**counts, "drops": details}, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(counts, indent=2))
    else:
        for line in _lines(tally, written, output):
            say(line)


def _lines(tally: Tally, written: int, output: Path) -> Iterator[str]:
    for unit in Unit:
        yield f"{unit:<10} kept {share_text(tally.kept[unit], tally.seen[unit])}"
        for reason, count in tally.reasons(unit).items():
            yield f"{'':<10} {count:>6}  {reason}"
    yield f"{written} records in {output}"


@app.command()
def validate(  # noqa: PLR0913 - one parameter an option
    rows: Annotated[Path, typer.Argument(metavar="IN", help="Records or pairs, as JSON lines.")],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the good rows go.")],
    recheck: Annotated[bool, typer.Option(help="Judge all code by the front end again.")] = True,
    quarantine: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the other rows go [default: OUT.quarantine.jsonl beside the output]."),
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the counts go, as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as one JSON document.")] = False,
) -> None:
    """Keep the rows that are as they should be: schema, rating, size, accepted code, nothing repeated.

    `config/pipeline.yaml` says from which likeness on a row repeats an earlier one, and how many rows one source file
    or one template may give. The other rows go beside the output with their reasons,
    and so does its digest. With VOX_MENS_TRAIN_JSONL_STRICT=1 the first row that is not kept ends the command, and
    nothing is written.

    Exit code 0: the good rows are written. 1: strict, and a row is not kept. 2: the command was misused.
    """
    from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
    from mens_pipeline.corpus.curate.repetition import Repetition
    from mens_pipeline.corpus.curate.validate import Quarantined, ValidationReport, validate_rows
    from mens_pipeline.settings import PIPELINE_CONFIG, load_settings
    from mens_pipeline.storage.jsonl import open_rows, write_digest, write_jsonl, write_text

    repetition = Repetition(load_pipeline_config(PIPELINE_CONFIG).validate_)
    is_strict = load_settings().strict_jsonl
    counts = ValidationReport(recheck=recheck)
    refused: list[Quarantined] = []

    def refuse(row: Quarantined) -> None:
        if is_strict:
            advice = "Correct it, or unset VOX_MENS_TRAIN_JSONL_STRICT to quarantine such rows."
            raise RefusedError(f"{rows}:{row.line}: {row.reason}: {row.detail}. {advice}")
        refused.append(row)

    with open_rows(rows) as lines:
        write_jsonl(output, validate_rows(lines, counts, refuse, repetition))
    assert counts.adds_up(), "a row was neither kept nor rejected"  # noqa: S101 - our own impossibility
    beside = quarantine or output.with_suffix(f".quarantine{output.suffix}")
    write_jsonl(beside, refused)
    document = {**counts.as_json(), "quarantine": str(beside), "output_sha256": write_digest(output)}
    if report is not None:
        write_text(report, json.dumps(document, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    say(f"kept {share_text(counts.kept, counts.seen)}, recheck {'on' if recheck else 'off'}")
    for reason, count in counts.rejected.items():
        say(f"{count:>6}  {reason}")
    for warning, count in counts.warned.items():
        if count:
            say(f"{count:>6}  kept, but {warning}")
    if refused:
        say(f"{len(refused)} rows with their reasons in {beside}")


@app.command()
def pairs(
    records: Annotated[Path, typer.Argument(metavar="IN", help="Extracted records, as JSON lines.")],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the pairs go, as JSON lines.")],
    docs: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="A folder of pages to extract as well; a page counts once."),
    ] = None,
) -> None:
    """Make training pairs: a prompt for each record, and the record as its answer.

    A function that can be run is observed: its prompt gives examples of what it does, and its pair has hidden tests.

    Exit code 0: the pairs are written. 1: IN holds a row that is no record. 2: the command was misused.
    """
    from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
    from mens_pipeline.corpus.curate.pairs import BehaviourCounts, make_pairs
    from mens_pipeline.corpus.extract.workspace import page_records
    from mens_pipeline.corpus.schema.reading import read_records
    from mens_pipeline.storage.jsonl import open_rows, write_jsonl

    with open_rows(records) as lines:
        extracted = list(read_records(lines, records))
    known = {record.source.blob for record in extracted}
    extracted += page_records(docs or [], known)
    counts = BehaviourCounts()
    with BehaviourWorkers() as workers:
        written = write_jsonl(output, make_pairs(extracted, workers, counts))
    say(f"{written} pairs in {output}, from {len(extracted)} records")
    behaviour = counts.as_json()
    say(f"behaviour observed of {share_text(behaviour['observed'], behaviour['functions'])} functions")
    for reason, count in behaviour["without"].items():
        say(f"{count:>6}  {reason}")


@app.command(name="eval")
def evaluate(
    rows: Annotated[Path, typer.Argument(metavar="IN", help="Records or pairs, as JSON lines.")],
    *,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where the figures go, as JSON.")
    ] = Path("data_evaluation.json"),
    print_summary: Annotated[bool, typer.Option("--print-summary", help="Print the figures as well.")] = False,
) -> None:
    """Measure training data: parse rate by lane, and coverage by lane of the constructs that the parser can produce.

    These are figures of the data, not of what a model writes.

    Exit code 0: the figures are written. 2: the command was misused.
    """
    from mens_pipeline.corpus.curate.data_evaluation import evaluate_data
    from mens_pipeline.storage.jsonl import open_rows, write_text

    with open_rows(rows) as lines:
        figures = evaluate_data(lines).document()
    write_text(output, figures.model_dump_json(indent=2, by_alias=True) + "\n")
    if print_summary:
        say(f"measured: {figures.measured}")
        for name, counts in {"parse rate": figures, **figures.lanes}.items():
            indent = "" if counts is figures else "  "
            coverage = share_text(len(counts.constructs), figures.construct_total)
            say(f"{indent}{name} {share_text(counts.num_parsed, counts.num_code_rows)}, coverage {coverage}")
        say(f"missing {', '.join(figures.missing_constructs) or 'none'}")
        say(f"prose rows {figures.num_prose_rows}, unreadable rows {figures.num_unreadable_rows}")
