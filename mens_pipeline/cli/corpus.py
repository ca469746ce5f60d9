"""`mens corpus` and `mens telemetry`: from a workspace or a telemetry table to a train set, step by step."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic import BaseModel, ValidationError

from mens_pipeline.cli.options import REQUIRED, argument, declare_options, option, switch
from mens_pipeline.cli.synthesis import evol
from mens_pipeline.cli.terminal import REFUSED, log_line, print_line, refuse_repeated, show, write_report
from mens_pipeline.cli.upstream import AdvisingGroup, ListingGroup
from mens_pipeline.corpus.schema.account import Account, Drop, Unit, at_least_one, most_frequent, share_text
from mens_pipeline.corpus.schema.reasons import DropReason, NoBehaviour
from mens_pipeline.corpus.schema.records import read_records
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.settings import GATE_POLICY, MIX_CONFIG, PIPELINE_CONFIG, load_settings
from mens_pipeline.storage.jsonl import open_rows, write_digest, write_jsonl, write_lines, write_text
from mens_pipeline.storage.validation import errors_in

if TYPE_CHECKING:
    from mens_pipeline.corpus.infill.rows import InfillRows
    from mens_pipeline.corpus.telemetry.redaction import SensitiveKind
    from mens_pipeline.corpus.telemetry.table import TelemetryAccount, TelemetryQuery


app = typer.Typer(name="corpus", cls=AdvisingGroup, help="Turn a workspace into training data.", no_args_is_help=True)


@app.command()
@declare_options
def extract(
    *,
    folder: Path = argument("A Vox workspace, or a folder in one.", metavar="DIR"),
    output: Path = option(REQUIRED, "File for the records, as JSON lines.", "-o", "--output", metavar="FILE"),
    report: Path | None = option(None, "File for the counts and everything that was dropped.", metavar="FILE"),
    as_json: bool = switch("Print the counts as one JSON document.", "--json"),
) -> None:
    """Extract records from the `.vox` files and Markdown pages below a folder.

    A program trains unless it opts out; a page only if it says `training_eligible: true`. Everything dropped is counted
    with a reason. Secrets and personal data are masked or dropped, as `redaction` in config/pipeline.yaml says.

    Folders of a workspace with an `examples.ssot.v1.yaml` may be extracted one by one into one file: records of other
    folders stay while their files are unchanged, and are counted with a reason otherwise. An output file that holds
    other rows than records is not changed.

    Exit code 0: the records are written. 1: the output file holds other rows. 2: the command was misused.
    """
    from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config, load_source_policy
    from mens_pipeline.corpus.extract.batches import Pool
    from mens_pipeline.corpus.extract.sources import OwnSources, find_newest_commit, find_problems, find_source_roots
    from mens_pipeline.corpus.extract.workspace import carried_records, extract_workspace, extraction_report

    refuse_repeated(output, report)
    accounts = {unit: Account[DropReason]() for unit in Unit}
    drops: list[Drop] = []
    redacted: Counter[SensitiveKind] = Counter()
    policy, kept_out = load_pipeline_config(PIPELINE_CONFIG), load_source_policy(PIPELINE_CONFIG)
    roots = find_source_roots(folder)
    workspace = roots.workspace or folder
    sources = OwnSources(workspace.resolve(), policy.include)
    carried = carried_records(output, folder, sources, roots, kept_out)

    def lines() -> Iterator[str]:
        yield from carried.lines
        outcomes = extract_workspace(
            folder,
            find_newest_commit(folder),
            pool=Pool(load_settings().num_workers),
            sources=sources,
            redaction=policy.redaction,
            policy=kept_out,
        )
        for outcome in outcomes:
            outcome.count(accounts)
            redacted.update(outcome.redacted)
            drops.extend(outcome.drops)
            yield from outcome.lines

    written = write_lines(output, lines()) - len(carried.lines)
    if carried.lines:
        log_line(f"kept {len(carried.lines)} records from other folders of {workspace} in {output}")
    for reason, count in carried.dropped.most_common():
        log_line(f"removed {count} records from other folders of {workspace} from {output}: {reason}")
    checkouts = sources.origins()
    for problem in find_problems(checkouts):
        log_line(problem)
    counts = {
        **extraction_report(accounts, written, redacted),
        "checkouts": [checkout.model_dump() for checkout in checkouts],
        "other_folders": carried.as_json(),
        "output_sha256": write_digest(output),
    }
    write_report(report, {**counts, "drops": [asdict(drop) for drop in drops]})
    show(counts, _extraction_lines(accounts, redacted, f"{written} records in {output}"), as_json=as_json)


def _extraction_lines(
    accounts: dict[Unit, Account[DropReason]], redacted: "Counter[SensitiveKind]", summary: str
) -> Iterator[str]:
    for unit, account in accounts.items():
        if unit is Unit.OTHER_FORMAT and not account.seen:
            continue
        yield f"{unit:<10} kept {share_text(account.kept, account.seen)}"
        for reason, count in most_frequent(account.dropped).items():
            yield f"{'':<10} {count:>6}  {reason}"
    yield summary
    if redacted:
        yield "sensitive data found and masked or dropped (redaction in config/pipeline.yaml):"
        yield from (f"{'':<10} {count:>6}  {kind}" for kind, count in most_frequent(redacted).items())


@app.command()
@declare_options
def validate(
    *,
    rows: Path = argument("Records or pairs, as JSON lines.", metavar="IN"),
    output: Path = option(REQUIRED, "File for the valid rows.", "-o", "--output", metavar="FILE"),
    recheck: bool = option(True, "Check all code with the front end again."),
    quarantine: Path | None = option(
        None, "File for the dropped rows [default: OUT.quarantine.jsonl next to the output].", metavar="FILE"
    ),
    report: Path | None = option(None, "File for the counts, as JSON.", metavar="FILE"),
    as_json: bool = switch("Print the counts as one JSON document.", "--json"),
) -> None:
    """Keep valid rows: schema, rating, size, accepted code, no repetition.

    `config/pipeline.yaml` sets the similarity at which a row counts as a repetition, and the maximum rows of a source
    file or template. Dropped rows with their reasons and a digest are written next to the output. With
    VOX_MENS_TRAIN_JSONL_STRICT=1 the first invalid row ends the command, and nothing is written.

    Rows may be upstream's: missing fields are filled in, and a conversation becomes its last completion.

    Exit code 0: the valid rows are written. 1: no row is kept, or, if strict, one is invalid. 2: the command was
    misused.
    """
    from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
    from mens_pipeline.corpus.curate.validate import Quarantined, Repetition, ValidationReport, validate_rows

    repetition = Repetition(load_pipeline_config(PIPELINE_CONFIG).validate_)
    is_strict = load_settings().strict_jsonl
    counts = ValidationReport(recheck=recheck)
    refused: list[Quarantined] = []

    def refuse(row: Quarantined) -> None:
        if is_strict:
            advice = "Correct the row, or unset VOX_MENS_TRAIN_JSONL_STRICT to quarantine such rows."
            raise RefusedError(f"{rows}:{row.line}: {row.reason}: {row.detail}. {advice}")
        refused.append(row)

    beside = quarantine or output.with_suffix(f".quarantine{output.suffix}")
    refuse_repeated(*{rows.resolve(), output.resolve()}, beside, report)

    def keep_rows(raw: Iterator[bytes]) -> Iterator[BaseModel]:
        yield from validate_rows(raw, counts, refuse, repetition)
        write_jsonl(beside, refused)

    with open_rows(rows) as raw:
        advice = f"{output} is unchanged; {beside} lists the dropped rows with their reasons."
        write_jsonl(output, at_least_one(keep_rows(raw), counts, rows, advice))
    counts.check()
    document = {**counts.as_json(), "quarantine": str(beside), "output_sha256": write_digest(output)}
    write_report(report, document)
    lines = [f"kept {share_text(counts.kept, counts.seen)}, recheck {'on' if recheck else 'off'}"]
    lines += [f"{count:>6}  {reason}" for reason, count in counts.dropped.items()]
    lines += [f"{count:>6}  kept, but {warning}" for warning, count in counts.warned.items() if count]
    lines += [f"{len(refused)} dropped rows and their reasons in {beside}"] if refused else []
    show(document, lines, as_json=as_json)


@app.command()
@declare_options
def pairs(
    *,
    records: Path = argument("Extracted records, as JSON lines.", metavar="IN"),
    output: Path = option(REQUIRED, "File for the pairs, as JSON lines.", "-o", "--output", metavar="FILE"),
    docs: list[Path] | None = option(None, "Also extract this folder of pages; a page counts once.", metavar="DIR"),
) -> None:
    """Make training pairs: a prompt for each record, with the record as its completion.

    Functions that can run are executed: their prompts show examples of results, and their pairs have hidden tests.

    Exit code 0: the pairs are written. 1: no records, or other rows in IN. 2: the command was misused.
    """
    from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
    from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config, load_source_policy
    from mens_pipeline.corpus.curate.validated_pairs import behaviour_report, make_pairs
    from mens_pipeline.corpus.extract.workspace import page_records

    refuse_repeated(records, output)
    with open_rows(records) as lines:
        extracted = list(read_records(lines, records))
    known = {record.source.blob for record in extracted}
    policy, kept_out = load_pipeline_config(PIPELINE_CONFIG), load_source_policy(PIPELINE_CONFIG)
    extracted += page_records(docs or [], known, policy.redaction, kept_out, policy.include)
    if not extracted:
        raise RefusedError(f"{records}: no records. Run `mens corpus extract` first; {output} is unchanged.")
    account = Account[NoBehaviour]()
    with BehaviourWorkers() as workers:
        written = write_jsonl(output, make_pairs(extracted, workers, account))
    print_line(f"{written} pairs in {output}, from {len(extracted)} records")
    behaviour = behaviour_report(account)
    print_line(f"behaviour observed for {share_text(behaviour['observed'], behaviour['functions'])} functions")
    for reason, count in behaviour["without"].items():
        print_line(f"{count:>6}  {reason}")


@app.command()
@declare_options
def infill(
    *,
    rows: Path = argument("Training pairs, as JSON lines.", metavar="IN"),
    output: Path = option(REQUIRED, "File for the infill rows, as JSON lines.", "-o", "--output", metavar="FILE"),
    heldout: Path | None = option(None, "Held-out pairs; no row requests one of their lines.", metavar="FILE"),
    per_file: int = option(6, "Maximum holes in a program.", metavar="N", ge=1),
    view_share: float = option(0.3, "Share of rows with the view that an editor sends.", metavar="SHARE", ge=0, le=1),
    seed: int = option(0, "Seed for the choice of holes.", metavar="N", ge=0),
    as_json: bool = switch("Print the counts as one JSON document.", "--json"),
) -> None:
    """Cut holes in programs: rows that ask for a piece of a program, given the text before and after it.

    `mens corpus mix` and the pipeline do the same after the split, as config/mix.yaml says. Use this command to inspect
    such rows, or to make them for another trainer. Holes follow the syntax tree: the rest of a line, an expression,
    arguments, statements, a body, a field, a decorator; a third of them start within a word.

    Exit code 0: the rows are written. 1: IN holds other rows than pairs. 2: the command was misused.
    """
    from mens_pipeline.corpus.infill.rows import InfillPolicy, cut_rows
    from mens_pipeline.corpus.schema.records import read_pairs

    refuse_repeated(rows, output, heldout)
    policy = InfillPolicy(per_file=per_file, synthetic_share=1.0, view_share=view_share, seed=seed)
    cut = cut_rows(read_pairs(rows), read_pairs(heldout) if heldout is not None else (), policy)
    write_jsonl(output, cut.rows)
    show(cut.report().model_dump(), _infill_lines(cut, output), as_json=as_json)


def _infill_lines(cut: "InfillRows", output: Path) -> Iterator[str]:
    for kind, count in cut.report().kinds.items():
        yield f"{kind:<12} {share_text(count, cut.kept)}"
    yield from (f"{count:>6}  {reason}" for reason, count in most_frequent(cut.dropped).items())
    yield f"{cut.kept} rows in {output}"


@app.command()
@declare_options
def mix(
    *,
    config: Path | None = option(None, "Sources and weights [default: config/mix.yaml].", metavar="FILE"),
    data_dir: Path = option(Path(), "Folder that the paths of the mix are relative to.", metavar="DIR"),
    allow_missing_sources: bool = switch("Treat every source as optional."),
    infill_share: float | None = option(
        None, "Share of rows that complete code at a cursor [default: that of the mix].", metavar="X", ge=0, le=0.95
    ),
    as_json: bool = switch("Print the report as one JSON document.", "--json"),
) -> None:
    """Mix sources of pairs into one train set, in the shares of their weights.

    First, repeated rows are set aside, whole source files are held out for evaluation, and rows that resemble those
    or a benchmark task are kept out of training. Next to the train set are written: the same rows as Parquet, a report,
    `heldout.jsonl` and `families.jsonl` for evaluation, and `aside.jsonl` with reasons.

    Exit code 0: the train set is written. 1: a required source gives no rows. 2: the command was misused.
    """
    from mens_pipeline.cli.train_set import write_train_set
    from mens_pipeline.corpus.curate.mix import load_mix_config

    config_path = config or MIX_CONFIG
    wanted = load_mix_config(config_path)
    if allow_missing_sources:
        optional = tuple(source.model_copy(update={"optional": True}) for source in wanted.sources)
        wanted = wanted.model_copy(update={"sources": optional})
    wanted = wanted.with_infill_share(infill_share)
    report, lines, shortfall = write_train_set(wanted, data_dir, {"config_path": str(config_path)})
    if shortfall and not as_json:
        log_line(shortfall)
    show(report, lines, as_json=as_json)


app.command()(evol)


@app.command()
@declare_options
def stats(
    *,
    rows: Path = argument("Records or pairs, as JSON lines.", metavar="IN"),
    as_json: bool = switch("Print the figures as one JSON document.", "--json"),
) -> None:
    """Count lanes, kinds, constructs, ratings, difficulty, lengths and repetition in training data.

    Exit code 0: the figures are printed. 2: the command was misused.
    """
    from mens_pipeline.corpus.curate.figures import compute_statistics

    with open_rows(rows) as lines:
        figures = compute_statistics(lines)
    show(figures, _statistics_lines(figures), as_json=as_json)


def _statistics_lines(figures: dict[str, Any]) -> Iterator[str]:
    yield f"rows {figures['num_rows']}, distinct {share_text(figures['num_distinct'], figures['num_rows'])}"
    yield f"source files {figures['num_sources']}, unreadable rows {figures['num_unreadable_rows']}"
    for name, lengths in figures["characters"].items():
        yield f"{name} characters: median {lengths['median']}, 95 % {lengths['p95']}, longest {lengths['longest']}"
    for name, counts in figures["counts"].items():
        yield name
        yield from (f"{count:>8}  {value}" for value, count in counts.items())


@app.command(name="eval")
@declare_options
def evaluate(
    *,
    rows: Path = argument("Records or pairs, as JSON lines.", metavar="IN"),
    output: Path = option(
        Path("data_evaluation.json"), "File for the figures, as JSON.", "-o", "--output", metavar="FILE"
    ),
    print_summary: bool = switch("Print the figures as well."),
) -> None:
    """Measure training data: parse rate and coverage of constructs, by lane.

    These figures describe data, not a model. They are compared with the requirements for data in config/gates.yaml,
    or with VOX_EVAL_MIN_PARSE_RATE and VOX_EVAL_MIN_COVERAGE.

    Exit code 0: the figures are written. 1: they are too low, with VOX_EVAL_STRICT=1. 2: the command was misused.
    """
    from mens_pipeline.corpus.curate.figures import evaluate_data
    from mens_pipeline.promotion.policy import load_gate_policy

    settings, policy = load_settings(), load_gate_policy(GATE_POLICY)
    rate, coverage = (
        default if given is None else given
        for given, default in (
            (settings.eval_min_parse_rate, policy.min_source_parse_rate),
            (settings.eval_min_coverage, policy.min_corpus_coverage),
        )
    )
    refuse_repeated(rows, output)
    with open_rows(rows) as lines:
        figures = evaluate_data(lines).compare(rate, coverage)
    write_text(output, figures.model_dump_json(indent=2, by_alias=True) + "\n")
    if print_summary:
        print_line(f"measured: {figures.measured}")
        for name, counts in {"parse rate": figures, **figures.lanes}.items():
            indent = "" if counts is figures else "  "
            shown = share_text(len(counts.constructs), figures.construct_total)
            print_line(f"{indent}{name} {share_text(counts.num_parsed, counts.num_code_rows)}, coverage {shown}")
        print_line(f"missing {', '.join(figures.missing_constructs) or 'none'}")
        print_line(f"prose rows {figures.num_prose_rows}, unreadable rows {figures.num_unreadable_rows}")
    measured = f"parse rate {100 * (figures.vox_parse_rate or 0):.1f} %, required {100 * rate:g} %"
    covered = f"coverage {100 * figures.construct_coverage:.1f} %, required {100 * coverage:g} %"
    print_line(f"{'passed' if figures.gate_passed else 'FAILED'}  {measured}; {covered}; figures in {output}")
    if settings.eval_strict and not figures.gate_passed:
        raise typer.Exit(REFUSED)


telemetry_app = typer.Typer(
    name="telemetry", cls=ListingGroup, help="Turn telemetry of agents into training data.", no_args_is_help=True
)


@telemetry_app.command(name="import")
@declare_options
def import_rows(
    *,
    output: Path = option(REQUIRED, "File for the pairs, as JSON lines.", "-o", "--output", metavar="FILE"),
    url: str | None = option(
        None,
        "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE [default: MENS_TELEMETRY_URL, which other "
        "users of the machine cannot read].",
        metavar="URL",
    ),
    table: str = option("AgentTelemetry", "Table or view, NAME or SCHEMA.NAME.", metavar="NAME"),
    query_column: str = option("query", "Column of requests.", metavar="NAME"),
    response_column: str = option("optimal_response", "Column of the best responses.", metavar="NAME"),
    rating_column: str | None = option(
        None, "Column of ratings from 1 to 5; rows without one count as 4.", metavar="NAME"
    ),
    order_column: str | None = option(
        None, "Column that orders rows by age [default: the key of the table].", metavar="NAME"
    ),
    limit: int = option(5000, "Maximum rows to read, newest first.", ge=1, le=1_000_000),
    report: Path | None = option(None, "File for the counts, as JSON.", metavar="FILE"),
    as_json: bool = switch("Print the counts as one JSON document.", "--json"),
) -> None:
    """Make training pairs from a table of queries and optimal responses, in SQLite or PostgreSQL.

    Keys, tokens, passwords, addresses, phone and card numbers, and names in home paths are redacted before anything is
    written. The database is only read. Every row is kept or dropped with a reason.

    Exit code 0: the pairs are written. 1: no row trains, and nothing is written. 2: the command was misused.
    """
    from mens_pipeline.corpus.telemetry.table import TelemetryAccount, read_telemetry, telemetry_pairs

    refuse_repeated(output, report)
    columns = {"query_column": query_column, "response_column": response_column, "rating_column": rating_column}
    query = _build_query(url, table=table, **columns, order_column=order_column, limit=limit)
    account = TelemetryAccount()
    pairs = telemetry_pairs(read_telemetry(query), account, table)
    written = write_jsonl(output, at_least_one(pairs, account, table, "Check --table and the columns."))
    account.check()
    counts = {"table": table, **account.as_json()}
    write_report(report, counts)
    show(counts, [*_telemetry_lines(account), f"{written} pairs in {output}"], as_json=as_json)


def _build_query(url: str | None, **parts: Any) -> "TelemetryQuery":
    from mens_pipeline.corpus.telemetry.table import TelemetryQuery

    source = url or load_settings().telemetry_url
    if not source:
        raise ConfigurationError("telemetry: no database URL. Pass --url, or set MENS_TELEMETRY_URL.")
    try:
        return TelemetryQuery.model_validate({"url": source, **parts})
    except ValidationError as error:
        raise ConfigurationError(f"telemetry: {errors_in(error)}. Correct these options.") from error


def _telemetry_lines(account: "TelemetryAccount") -> Iterator[str]:
    yield f"kept {share_text(account.kept, account.seen)}"
    for title, counts in (("lane", account.lanes), ("dropped", account.dropped), ("redacted", account.redactions)):
        for key, count in sorted(counts.items()):
            yield f"{title:<8} {count:>6}  {key}"
