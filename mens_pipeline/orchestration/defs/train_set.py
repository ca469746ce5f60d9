"""From the corpus to the train set: synthetic corpus, validated pairs, split and mix, each with its checks."""

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import dagster as dg
from pydantic import Field

from mens_pipeline.corpus.curate.figures import compute_statistics
from mens_pipeline.corpus.curate.heldout_split import (
    ASIDE,
    HELDOUT,
    OVERLAP_STAGE,
    OverlapParams,
    OverlapReport,
    SplitParams,
    SplitReport,
)
from mens_pipeline.corpus.curate.heldout_split import STAGE as SPLITTING
from mens_pipeline.corpus.curate.mix import MixReport, SourceReport, load_mix_config
from mens_pipeline.corpus.curate.mixed_train_set import REPORT_SUFFIX, TRAIN, MixParams
from mens_pipeline.corpus.curate.mixed_train_set import STAGE as MIXING
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.curate.validated_pairs import PAIRS, QUARANTINE, PairsDetails, RowCounts, ValidationParams
from mens_pipeline.corpus.curate.validated_pairs import STAGE as VALIDATION
from mens_pipeline.corpus.extract.extracted_corpus import RECORDS, TELEMETRY
from mens_pipeline.corpus.infill.rows import ROWS
from mens_pipeline.corpus.schema.account import count_lost, share_text
from mens_pipeline.corpus.schema.reasons import SynthesisDrop
from mens_pipeline.corpus.schema.records import SourceKind, TrainingPair, read_pairs
from mens_pipeline.corpus.synthesis.synthetic_corpus import PAIRS as SYNTHETIC_PAIRS
from mens_pipeline.corpus.synthesis.synthetic_corpus import REPORT as SYNTHETIC_REPORT
from mens_pipeline.corpus.synthesis.synthetic_corpus import STAGE as SYNTHESIS
from mens_pipeline.corpus.synthesis.synthetic_corpus import SynthesisParams, SyntheticDetails
from mens_pipeline.evaluation.benchmark import protected_pairs
from mens_pipeline.evaluation.tasks import heldout_tasks
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline.orchestration.asset import blocking_check, declare_asset, version_with_config
from mens_pipeline.orchestration.charts import bar_chart
from mens_pipeline.orchestration.metadata import YOURS, count_reasons, required_by, table
from mens_pipeline.orchestration.resources import ArtifactStoreResource, find_pools, hand_over
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.settings import GATE_POLICY, MIX_CONFIG, PIPELINE_CONFIG, load_settings, read_thresholds
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactRef

_OTHERS: Final = {SourceKind.EVOLVED, SourceKind.SYNTHETIC, SourceKind.TELEMETRY}
"""Origins outside the workspace."""


@declare_asset("corpus", "json", version=version_with_config(SYNTHESIS, PIPELINE_CONFIG), rows=TrainingPair)
def synthetic_corpus(extracted_corpus: ArtifactRef, store: ArtifactStoreResource) -> dg.MaterializeResult[Any]:
    """Generate tasks, templates and combinations that parse and pass their tests.

    config/pipeline.yaml sets the number of each kind. The same corpus and seed give the same bytes.
    """
    policy = load_pipeline_config(PIPELINE_CONFIG).synthesize
    corpus, pool = store.artifact(extracted_corpus), find_pools().batches
    synthetic, reused = SYNTHESIS.build(store.open(), SynthesisParams(corpus=corpus, policy=policy, pool=pool))
    report = synthetic.manifest
    constructs = {name: counts["count"] for name, counts in report["constructs"].items()}
    metadata: dict[str, Any] = {
        "dagster/row_count": report["num_pairs"],
        "reused": reused,
        "pairs": dg.MetadataValue.path(synthetic.file(SYNTHETIC_PAIRS)),
        "report": dg.MetadataValue.path(synthetic.file(SYNTHETIC_REPORT)),
        **{f"kind/{kind}": share_text(c["count"], report["num_pairs"]) for kind, c in report["kinds"].items()},
        **{str(reason): sum(report[reason].values()) for reason in SynthesisDrop},
        "constructs": table(
            {"construct": name, "before": c["before"], "made": share_text(c["count"], report["num_pairs"])}
            for name, c in report["constructs"].items()
        ),
        "chart": dg.MetadataValue.md(bar_chart("synthetic pairs by construct", constructs)),
    }
    return hand_over(synthetic, extracted_corpus, metadata=metadata)


@blocking_check(synthetic_corpus)
def as_many_as_asked(synthetic_corpus: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that the number of pairs is exactly the one in config/pipeline.yaml."""
    asked = load_pipeline_config(PIPELINE_CONFIG).synthesize.limit
    num_pairs = SyntheticDetails.of(store.artifact(synthetic_corpus)).num_pairs
    return dg.AssetCheckResult(passed=num_pairs == asked, metadata={"num_pairs": num_pairs, "asked": asked})


@declare_asset("corpus", "json", version=version_with_config(VALIDATION, PIPELINE_CONFIG), rows=TrainingPair)
def validated_pairs(
    extracted_corpus: ArtifactRef, synthetic_corpus: ArtifactRef, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    """Make pairs of prompt and completion; drop rows that fail schema, code or repetition checks, with a reason.

    An unchanged corpus gives the same pairs.
    """
    policy = load_pipeline_config(PIPELINE_CONFIG).validate_
    corpus = store.artifact(extracted_corpus)
    synthetic = store.artifact(synthetic_corpus)
    others = {SYNTHETIC_PAIRS: synthetic.file(SYNTHETIC_PAIRS), TELEMETRY: corpus.file(TELEMETRY)}
    observers = find_pools().observers
    params = ValidationParams(corpus=corpus, others=others, policy=policy, observers=observers)
    pairs, reused = VALIDATION.build(store.open(), params)
    details = PairsDetails.of(pairs)
    return hand_over(
        pairs,
        extracted_corpus,
        synthetic_corpus,
        metadata={
            YOURS: _account_for_records(pairs, details.validation[RECORDS]),
            "dagster/row_count": sum(details.num_pairs.values()),
            "reused": reused,
            "folder": dg.MetadataValue.path(pairs.path),
            "quarantine": dg.MetadataValue.path(pairs.file(QUARANTINE)),
            "validation": table(
                {
                    "file": name,
                    "kept": share_text(v.kept, v.seen),
                    "rejected": ", ".join(f"{count} {reason}" for reason, count in v.rejected.items() if count)
                    or "none",
                    "warned": ", ".join(f"{n} {reason}" for reason, n in v.warned.items() if n) or "none",
                }
                for name, v in details.validation.items()
            ),
            "functions_observed": share_text(details.behaviour.observed, details.behaviour.functions),
            **{f"not_observed/{reason}": count for reason, count in details.behaviour.without.items()},
            **{f"pairs/{name}": count for name, count in details.num_pairs.items()},
            **{f"lane/{lane}": count for lane, count in details.lanes.items()},
            "chart": dg.MetadataValue.md(bar_chart("pairs by category", details.categories)),
        },
    )


def _account_for_records(pairs: Artifact, counts: RowCounts) -> str:
    # The rows of the corpus come first in the quarantine.
    with pairs.file(QUARANTINE).open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in islice(lines, counts.seen - counts.kept)]
    read = ((row["reason"], row["record"]) for row in rows)  # too large rows have no record
    dropped = ((reason, record["source"]["path"] if record else "") for reason, record in read)
    kept = ", ".join((f"{counts.seen} records: {counts.kept} valid", *count_reasons(dropped)))
    return "; kept with ".join(filter(None, (kept, ", ".join(count_reasons(counts.places)))))


@blocking_check(validated_pairs)
def rows_accounted_for(validated_pairs: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that every row is kept or quarantined with a reason; count rows kept with a semantic error."""
    validation = PairsDetails.of(store.artifact(validated_pairs)).validation
    missing = {name: count_lost(v.seen, v.kept, v.rejected) for name, v in validation.items()}
    warned = {f"{reason}/{name}": n for name, v in validation.items() for reason, n in v.warned.items()}
    unaccounted = {f"unaccounted/{name}": count for name, count in missing.items()}
    return dg.AssetCheckResult(passed=not any(missing.values()), metadata={**unaccounted, **warned})


@declare_asset("corpus", "json", version=version_with_config(SPLITTING, PIPELINE_CONFIG), rows=TrainingPair)
def heldout_split(
    context: dg.AssetExecutionContext, validated_pairs: ArtifactRef, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    """Split pairs by source file into held-out pairs, for evaluation, and training pairs without near copies of them.

    Files are ordered by a hash of their path and the first ones are held out, so the eval suite is stable from night
    to night. If it would be too small, more files are held out. Warns if the gate will refuse its size.
    """
    config, settings = load_pipeline_config(PIPELINE_CONFIG), load_settings()
    protected = protected_pairs(settings.benchmark_dir)
    params = SplitParams(
        pairs=store.artifact(validated_pairs),
        repeats=config.validate_,
        policy=config.split,
        protected=protected,
        observers=find_pools().observers,
    )
    split, reused = SPLITTING.build(store.open(), params)
    counts = SplitReport.of(split)
    tasks = heldout_tasks(read_pairs(split.file(HELDOUT)))
    is_enough, size = read_thresholds(settings).check_size(len(tasks), len({task.file for task in tasks}))
    size = f"the gate {'accepts' if is_enough else 'will refuse'} (policy {settings.eval_policy}): {size}"
    if not is_enough:
        context.log.warning(size)
    metadata: dict[str, Any] = {
        YOURS: _account_for_pairs(split, counts, PairsDetails.of(params.pairs).num_pairs[PAIRS]),
        "dagster/row_count": sum(counts.train.values()),
        "reused": reused,
        "heldout": dg.MetadataValue.path(split.file(HELDOUT)),
        "aside": dg.MetadataValue.path(split.file(ASIDE)),
        "heldout_files": share_text(counts.num_heldout_groups, counts.num_groups),
        "num_heldout": counts.heldout,
        "evaluating_files": counts.num_evaluating_groups,
        "eval_suite": counts.shortfall or "as large as requested",
        "suite_size": size,
        "is_suite_enough": is_enough,
        **{f"train/{name}": count for name, count in counts.train.items()},
        **{f"aside/{reason}": count for reason, count in counts.aside.items()},
        **{f"tested_functions/{status}": count for status, count in counts.tested_functions.items()},
    }
    return hand_over(split, validated_pairs, metadata=metadata)


def _account_for_pairs(split: Artifact, counts: SplitReport, total: int) -> str:
    with split.file(ASIDE).open(encoding="utf-8") as lines:
        aside = [(row["reason"], row["pair"]["source"]) for row in map(json.loads, lines)]
    dropped = [(reason, source["path"]) for reason, source in aside if source and source["kind"] not in _OTHERS]
    pairs = read_pairs(split.file(HELDOUT))
    heldout = count_reasons(("held out", pair.source.path if pair.source else "") for pair in pairs)
    return ", ".join((f"{total} pairs: {counts.train[PAIRS]} train", *heldout, *count_reasons(dropped)))


@blocking_check(heldout_split)
def no_overlap(heldout_split: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that no training row is near a held-out or benchmark task or passes its hidden tests.

    Near means the same source or prompt, half of the eight-word runs, or the same structure. The check compares the
    files independently of the split stage, once per split.
    """
    policy = load_pipeline_config(PIPELINE_CONFIG).split
    protected = protected_pairs(load_settings().benchmark_dir)
    params = OverlapParams(split=store.artifact(heldout_split), policy=policy, protected=protected)
    found = OverlapReport.of(OVERLAP_STAGE.build(store.open(), params)[0])
    is_clean = not (found.pairs_of_heldout_files or found.near_copies or found.same_behaviour)
    return dg.AssetCheckResult(passed=is_clean, metadata=found.model_dump())


@blocking_check(heldout_split)
def pairs_accounted_for(heldout_split: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that every validated pair trains, evaluates, or is set aside with a reason."""
    counts = SplitReport.of(store.artifact(heldout_split))
    num_pairs = PairsDetails.of(store.artifact(heldout_split.of(Kind.VALIDATED_PAIRS))).num_pairs
    seen = sum(num_pairs[name] for name in counts.train)
    missing = count_lost(seen, sum(counts.train.values()) + counts.heldout, counts.aside)
    return dg.AssetCheckResult(passed=missing == 0, metadata={"num_pairs": seen, "unaccounted": missing})


class MixingConfig(dg.Config):
    """Run configuration of the mix."""

    infill_share: float | None = Field(
        default=None, description="Share of rows that complete code at a cursor; by default as in config/mix.yaml."
    )


@declare_asset(
    "corpus", "json", "parquet", version=version_with_config(MIXING, MIX_CONFIG, PIPELINE_CONFIG), rows=TrainingPair
)
def mixed_train_set(
    config: MixingConfig, heldout_split: ArtifactRef, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    """Mix the sources in the shares of config/mix.yaml and shuffle them by its seed.

    Rows that complete code at a cursor are cut from the training rows and mixed in.
    """
    mix = load_mix_config(MIX_CONFIG).with_infill_share(config.infill_share)
    redaction = load_pipeline_config(PIPELINE_CONFIG).redaction
    params = MixParams(split=store.artifact(heldout_split), config=mix, redaction=redaction)
    mixed, reused = MIXING.build(store.open(), params)
    train = mixed.file(TRAIN)
    with mixed.file(TRAIN).open("rb") as lines:
        counts = compute_statistics(lines)["counts"]["category"]
    others = [name for name in sorted(counts) if name not in CONSTRUCTS]
    categories = {name: counts.get(name, 0) for name in (*CONSTRUCTS, *others)}
    report = MixReport.of(mixed)
    metadata: dict[str, Any] = {
        YOURS: f"mixed: {', '.join(_account_for_source(source) for source in report.sources if source.input_lines)}",
        "dagster/row_count": report.total_emitted,
        "num_distinct": report.num_pairs,
        "num_infill": report.total_distinct - report.num_pairs,
        "reused": reused,
        "train": dg.MetadataValue.path(train),
        "parquet": dg.MetadataValue.path(train.with_suffix(".parquet")),
        "report": dg.MetadataValue.path(train.with_suffix(REPORT_SUFFIX)),
        "shares": table(
            {
                "source": source.path,
                "rows": source.input_lines,
                "distinct": source.distinct_lines,
                "repeats": f"{source.repeats:.2f}",
                "requested": f"{source.requested_share:.3f}",
                "achieved": f"{source.share_of_output:.3f}",
                "skipped": str(source.skipped_reason or ""),
            }
            for source in report.sources
        ),
        **_infill_metadata(report),
        "chart": dg.MetadataValue.md(bar_chart("training rows by construct", categories)),
    }
    return hand_over(mixed, heldout_split, metadata=metadata)


def _account_for_source(source: SourceReport) -> str:
    dropped = ", ".join(f"{count} {reason}" for reason, count in source.dropped.items() if count)
    return f"{source.distinct_lines:,} {Path(source.path).stem}" + (f" (dropped {dropped})" if dropped else "")


def _infill_metadata(report: MixReport) -> dict[str, Any]:
    if report.infill is None:
        return {}
    return {
        "infill": dg.MetadataValue.md(bar_chart("infill rows by kind, before the mix", report.infill.kinds)),
        **{f"infill/not_cut/{reason}": count for reason, count in report.infill.dropped.items()},
    }


@blocking_check(mixed_train_set)
def enough_pairs(mixed_train_set: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that there are at least `min_pairs` distinct pairs (config/gates.yaml)."""
    required = required_by("min_pairs")
    num_pairs = MixReport.of(store.artifact(mixed_train_set)).num_pairs
    return dg.AssetCheckResult(passed=num_pairs >= required["required"], metadata={"measured": num_pairs, **required})


@blocking_check(mixed_train_set)
def mixed_rows_accounted_for(mixed_train_set: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that every row is used or dropped with a reason, and that file and report agree."""
    mixed = store.artifact(mixed_train_set)
    with mixed.file(TRAIN).open("rb") as lines:
        num_rows = sum(1 for _ in lines)
    report = MixReport.of(mixed)
    missing = sum(source.num_unaccounted for source in report.sources)
    emitted = sum(source.emitted_lines for source in report.sources)
    return dg.AssetCheckResult(
        passed=missing == 0 and emitted == num_rows == report.total_emitted,
        metadata={"unaccounted": missing, "num_rows": num_rows, "emitted": emitted},
    )


@dg.asset_check(asset=mixed_train_set)
def shares_as_asked(mixed_train_set: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Warn if the share of a source is off by more than `max_share_error` (config/gates.yaml).

    Sources that are too small for their share, even with all allowed repeats, do not count.
    """
    allowed, most = load_gate_policy(GATE_POLICY).max_share_error, load_mix_config(MIX_CONFIG).max_repeats
    report = MixReport.of(store.artifact(mixed_train_set))
    errors = share_errors(report.sources, most)
    small = [source.path for source in report.sources if source.path not in errors]
    passed = max(errors.values(), default=0.0) <= allowed
    return dg.AssetCheckResult(
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={
            "measured": round(max(errors.values(), default=0.0), 4),
            **required_by("max_share_error"),
            "required": f"at most {allowed:g}",
            "too_small_for_their_share": ", ".join(small) or "none",
            **({} if passed else {"advice": "Change weights in config/mix.yaml, or raise max_share_error."}),
            **{f"error/{path}": round(error, 4) for path, error in errors.items()},
        },
    )


def share_errors(sources: Sequence[SourceReport], max_repeats: float) -> dict[str, float]:
    """Return the distance of each source from its share, without sources that fall short even at `max_repeats` repeats.

    Rows are whole, so one row less than `max_repeats` times all rows counts as the maximum. Infill rows never repeat.
    """
    others = [
        source
        for source in sources
        if source.share_of_output >= source.requested_share
        or source.emitted_lines + 1 <= source.distinct_lines * (1 if source.path == ROWS else max_repeats)
    ]
    small = [source for source in sources if source not in others]
    asked, given = 1 - sum(s.requested_share for s in small), 1 - sum(s.share_of_output for s in small)
    return {s.path: abs(s.share_of_output / given - s.requested_share / asked) for s in others}
