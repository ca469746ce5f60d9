"""`mens corpus mix` and `mens corpus stats`: from sources of pairs to a train set, and what is in it."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mens_pipeline.cli.terminal import say
from mens_pipeline.corpus.schema.shares import share_text


def mix(
    *,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What is mixed [default: config/mix.yaml].")
    ] = None,
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where the paths of the mix begin.")] = Path(),
    allow_missing_sources: Annotated[
        bool, typer.Option("--allow-missing-sources", help="Take every source as optional.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON document.")] = False,
) -> None:
    """Mix sources of pairs into one train set, in the shares that their weights ask for.

    Before that, rows that repeat others are set aside, whole source files are held out to judge the model by, and
    whatever is too near to them or to a task of the benchmark is kept out of training. Beside the train set stand the
    same rows as Parquet, the report, `heldout.jsonl` and `families.jsonl`, which judge, and `aside.jsonl` with reasons.

    Exit code 0: the train set is written. 1: a source that is not optional gives nothing. 2: the command was misused.
    """
    from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
    from mens_pipeline.corpus.curate.heldout_split import ASIDE, FAMILIES, HELDOUT, family_pairs
    from mens_pipeline.corpus.curate.mix import mix_sources
    from mens_pipeline.corpus.curate.mix_config import load_mix_config
    from mens_pipeline.corpus.curate.mix_files import read_sources, write_mix
    from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
    from mens_pipeline.corpus.curate.repetition import Repetition
    from mens_pipeline.corpus.curate.split import split_pairs
    from mens_pipeline.evaluation.benchmark import protected_pairs
    from mens_pipeline.settings import MIX_CONFIG, PIPELINE_CONFIG, load_settings
    from mens_pipeline.storage.jsonl import write_jsonl

    config_path = config or MIX_CONFIG
    wanted = load_mix_config(config_path)
    if allow_missing_sources:
        optional = tuple(source.model_copy(update={"optional": True}) for source in wanted.sources)
        wanted = wanted.model_copy(update={"sources": optional})
    policy = load_pipeline_config(PIPELINE_CONFIG)
    sources = read_sources(wanted, data_dir)
    used = [source.path for source in wanted.sources if source.weight > 0]  # others must not shadow their rows
    present = {path: pairs for path in used if (pairs := sources[path].pairs) is not None}
    protected = protected_pairs(load_settings().benchmark_dir)
    with BehaviourWorkers() as workers:
        split = split_pairs(present, Repetition(policy.validate_), policy.split, workers, protected)
    for path, pairs in split.train.items():
        sources[path].pairs = pairs
    mixed = mix_sources(wanted, sources)
    output = data_dir / wanted.output
    about = {"config_path": str(config_path), "output_path": str(output), "config": wanted.model_dump(mode="json")}
    report = write_mix(mixed, output, {**about, "split": split.account()})
    write_jsonl(output.with_name(HELDOUT), split.heldout)
    write_jsonl(output.with_name(FAMILIES), family_pairs(policy.split))
    write_jsonl(output.with_name(ASIDE), split.aside)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _print_mix(report, output)


def _print_mix(report: dict[str, Any], output: Path) -> None:
    split = report["split"]
    say(f"held out {share_text(split['num_heldout_groups'], split['num_groups'])} source files")
    if split["shortfall"]:
        say(split["shortfall"], err=True)
    say(f"held out {split['heldout']} pairs; set aside:")
    for reason, count in split["aside"].items():
        if count:
            say(f"{count:>6}  {reason}")
    for source in report["sources"]:
        shares = f"share {source['share_of_output']:.3f} of {source['requested_share']:.3f} requested"
        note = f"  {source['skipped_reason']}" if source["skipped_reason"] else ""
        say(f"{source['path']:<20} {source['distinct_lines']:>6} distinct, {shares}{note}")
    say(f"{report['total_emitted']} rows in {output}, {report['total_distinct']} of them distinct")


def stats(
    rows: Annotated[Path, typer.Argument(metavar="IN", help="Records or pairs, as JSON lines.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON document.")] = False,
) -> None:
    """Count what is in training data: lanes, kinds, constructs, ratings, difficulty, lengths, repetition.

    Exit code 0: the figures are printed. 2: the command was misused.
    """
    from mens_pipeline.corpus.curate.statistics import statistics_of
    from mens_pipeline.storage.jsonl import open_rows

    with open_rows(rows) as lines:
        figures = statistics_of(lines).as_json()
    if as_json:
        typer.echo(json.dumps(figures, indent=2))
        return
    say(f"rows {figures['num_rows']}, distinct {share_text(figures['num_distinct'], figures['num_rows'])}")
    say(f"source files {figures['num_sources']}, unreadable rows {figures['num_unreadable_rows']}")
    for name, lengths in figures["characters"].items():
        say(f"{name} characters: median {lengths['median']}, 95 % {lengths['p95']}, longest {lengths['longest']}")
    for name, counts in figures["counts"].items():
        say(name)
        for value, count in counts.items():
            say(f"{count:>8}  {value}")
