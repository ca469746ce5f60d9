"""The train set that `mens corpus mix` writes, and `mens train` if it gets only pairs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mens_pipeline.cli.terminal import log_line
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.heldout_split import ASIDE, FAMILIES, HELDOUT, SplitReport, family_pairs, split_pairs
from mens_pipeline.corpus.curate.mix import MixConfig, MixReport, MixSource, load_mix_config, mix_sources
from mens_pipeline.corpus.curate.mixed_train_set import REPORT_SUFFIX, add_infill_rows, read_sources, write_mix
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config, load_source_policy
from mens_pipeline.corpus.curate.validate import Repetition
from mens_pipeline.corpus.schema.account import share_text
from mens_pipeline.corpus.schema.records import Lane
from mens_pipeline.evaluation.benchmark import digest_of_benchmark, protected_pairs
from mens_pipeline.evaluation.results import read_json
from mens_pipeline.settings import MIX_CONFIG, PIPELINE_CONFIG, Settings, load_settings
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import digest_of, key_of

PAIRS: Final = "train.jsonl"
_MIXED: Final = "validated_mixed.jsonl"  # upstream's name for a mixed train set
_MADE_FROM: Final = "made_from"
"""Entry of the report of a mix made by `mens train`: a hash of all its inputs."""


def find_train_set(data_dir: Path, settings: Settings) -> Path:
    """Return the train set of a folder; hold out and mix first if its pairs were not split or have changed.

    A train set that a person mixed and split is used unchanged.
    """
    pairs, mixed = data_dir / PAIRS, data_dir / _MIXED
    made_from = (read_json(mixed.with_suffix(REPORT_SUFFIX))[0] or {}).get(_MADE_FROM)
    is_split = pairs.with_name(HELDOUT).is_file()
    if not pairs.is_file() or (mixed.is_file() and made_from is None):
        return mixed if mixed.is_file() else pairs
    if is_split and (made_from is None or pairs.with_suffix(REPORT_SUFFIX).is_file()):
        return pairs
    changes = {"sources": (MixSource(path=PAIRS),), "output": _MIXED, "include_lanes": tuple(Lane), "exclude_lanes": ()}
    wanted = load_mix_config(MIX_CONFIG).model_copy(update=changes)
    decides = {
        "pairs": digest_of(pairs),
        "benchmark": digest_of_benchmark(settings.benchmark_dir),
        "mix": wanted.model_dump(mode="json"),
        "policy": load_pipeline_config(PIPELINE_CONFIG).model_dump(mode="json"),
        "sources": load_source_policy(PIPELINE_CONFIG).model_dump(mode="json"),
    }
    if not (is_split and mixed.is_file() and key_of(decides) == made_from):
        log_line(f"{pairs}: holding out source files first; --fast-corpus trains on all rows")
        _, lines, shortfall = write_train_set(wanted, data_dir, {_MADE_FROM: key_of(decides)})
        for line in filter(None, (*lines, shortfall)):
            log_line(line)
    return mixed


def write_train_set(wanted: MixConfig, data_dir: Path, about: dict[str, Any]) -> tuple[dict[str, Any], list[str], str]:
    """Split and mix pairs and write all files of `mens corpus mix`; `about` adds entries to the report.

    Return the report, its lines for people, and the reason if the eval suite is smaller than requested, else "".
    """
    policy = load_pipeline_config(PIPELINE_CONFIG)
    sources = read_sources(wanted, data_dir, policy.redaction, load_source_policy(PIPELINE_CONFIG))
    used = [source.path for source in wanted.sources if source.weight > 0]  # the others must not shadow their rows
    present = {path: pairs for path in used if (pairs := sources[path].pairs) is not None}
    protected = protected_pairs(load_settings().benchmark_dir)
    with BehaviourWorkers() as workers:
        split = split_pairs(present, Repetition(policy.validate_), policy.split, workers, protected)
    for path, pairs in split.train.items():
        sources[path].pairs = pairs
    infill = add_infill_rows(sources, split.heldout, wanted)
    mixed = mix_sources(wanted, sources)
    output = data_dir / wanted.output
    about = {**about, "output_path": str(output), "config": wanted.model_dump(mode="json")}
    write_jsonl(output.with_name(HELDOUT), split.heldout)
    write_jsonl(output.with_name(FAMILIES), family_pairs(policy.split))
    write_jsonl(output.with_name(ASIDE), split.aside)
    # The report is written last: if it exists, all other files do.
    report = write_mix(mixed, output, {**about, "infill": infill, "split": split.report().model_dump()})
    return report, list(_mix_lines(split.report(), mixed.report(), output)), split.shortfall


def _mix_lines(split: SplitReport, report: MixReport, output: Path) -> Iterator[str]:
    yield f"held out {share_text(split.num_heldout_groups, split.num_groups)} source files"
    yield f"held out {split.heldout} pairs; set aside:"
    yield from (f"{count:>6}  {reason}" for reason, count in split.aside.items() if count)
    for source in report.sources:
        shares = f"share {source.share_of_output:.3f} of {source.requested_share:.3f} requested"
        note = f"  {source.skipped_reason}" if source.skipped_reason else ""
        yield f"{source.path:<20} {source.distinct_lines:>6} distinct, {shares}{note}"
        yield from (f"{count:>6}  {reason}" for reason, count in source.dropped.items() if count)
    yield f"{report.total_emitted} rows in {output}, {report.total_distinct} of them distinct"
