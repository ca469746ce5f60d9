"""The held-out set and the train set, and the checks that nothing similar to what judges trains."""

from collections.abc import Iterable
from typing import Any

import dagster as dg

from mens_pipeline.corpus.curate.figures import statistics_of
from mens_pipeline.corpus.curate.heldout_split import (
    ASIDE,
    HELDOUT,
    STAGE,
    OverlapReport,
    build_heldout_overlap,
    build_heldout_split,
)
from mens_pipeline.corpus.curate.mix import MixReport, SourceReport, load_mix_config
from mens_pipeline.corpus.curate.mixed_train_set import REPORT_SUFFIX, TRAIN, build_mixed_train_set
from mens_pipeline.corpus.curate.mixed_train_set import STAGE as MIXING
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.curate.split import SplitReport
from mens_pipeline.corpus.curate.validated_pairs import KIND as PAIRS
from mens_pipeline.corpus.curate.validated_pairs import PairsDetails
from mens_pipeline.corpus.schema.account import share_text
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.evaluation.benchmark import protected_pairs
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline.orchestration.choices import OWNERS, configured
from mens_pipeline.orchestration.failures import plainly
from mens_pipeline.orchestration.metadata import bar_chart, columns_of, table
from mens_pipeline.orchestration.resources import ArtifactStoreResource
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.settings import GATE_POLICY, MIX_CONFIG, PIPELINE_CONFIG, load_settings
from mens_pipeline.storage.store import Artifact, ArtifactRef


@dg.asset(
    group_name="corpus",
    kinds={"json"},
    owners=OWNERS,
    metadata=columns_of(TrainingPair),
    code_version=configured(STAGE, PIPELINE_CONFIG),
)
@plainly
def heldout_split(validated_pairs: ArtifactRef, store: ArtifactStoreResource) -> dg.MaterializeResult[Any]:
    """Pairs of held-out source files, which judge the model, and the others without those too near to them.

    A file stands in an order by its path alone, and the exam takes the first ones, so it stays the same from night to
    night; where it is too small to tell anything, more files are taken.
    """
    config = load_pipeline_config(PIPELINE_CONFIG)
    protected = protected_pairs(load_settings().benchmark_dir)
    pairs = store.artifact(validated_pairs)
    split, reused = build_heldout_split(pairs, config.validate_, config.split, store.open(), protected)
    counts = SplitReport.of(split)
    return dg.MaterializeResult(
        value=split.ref(validated_pairs),
        data_version=dg.DataVersion(split.data_version),
        metadata={
            "dagster/row_count": sum(counts.train.values()),
            "reused": reused,
            "heldout": dg.MetadataValue.path(split.path / HELDOUT),
            "aside": dg.MetadataValue.path(split.path / ASIDE),
            "heldout_files": share_text(counts.num_heldout_groups, counts.num_groups),
            "num_heldout": counts.heldout,
            "judging_files": counts.num_judging_groups,
            "exam": counts.shortfall or "as large as asked for",
            **{f"train/{name}": count for name, count in counts.train.items()},
            **{f"aside/{reason}": count for reason, count in counts.aside.items()},
            **{f"tested_functions/{status}": count for status, count in counts.tested_functions.items()},
        },
    )


@dg.asset_check(asset=heldout_split, blocking=True)
def no_overlap(heldout_split: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """No training row is near a held-out task or one of the benchmark, nor passes its hidden tests.

    Near is the same source or prompt, half of its eight-word runs, or the same structure.

    The files are read again and compared anew, once for each split.
    """
    policy = load_pipeline_config(PIPELINE_CONFIG).split
    protected = protected_pairs(load_settings().benchmark_dir)
    found = OverlapReport.of(build_heldout_overlap(store.artifact(heldout_split), policy, store.open(), protected))
    is_clean = not (found.pairs_of_heldout_files or found.near_copies or found.same_behaviour)
    return dg.AssetCheckResult(passed=is_clean, metadata=found.model_dump())


@dg.asset_check(asset=heldout_split, blocking=True)
def pairs_accounted_for(heldout_split: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Every validated pair trains, judges, or is set aside with a reason."""
    split = store.artifact(heldout_split)
    seen = _num_pairs(store.artifact(heldout_split.of(PAIRS)), split)
    counts = SplitReport.of(split)
    missing = seen - sum(counts.train.values()) - counts.heldout - sum(counts.aside.values())
    return dg.AssetCheckResult(passed=missing == 0, metadata={"num_pairs": seen, "unaccounted": missing})


def _num_pairs(pairs: Artifact, split: Artifact) -> int:
    num_pairs = PairsDetails.of(pairs).num_pairs
    return sum(num_pairs[name] for name in SplitReport.of(split).train)


@dg.asset(
    group_name="corpus",
    kinds={"json", "parquet"},
    owners=OWNERS,
    metadata=columns_of(TrainingPair),
    code_version=configured(MIXING, MIX_CONFIG),
)
@plainly
def mixed_train_set(heldout_split: ArtifactRef, store: ArtifactStoreResource) -> dg.MaterializeResult[Any]:
    """Mix what the model is trained on: sources in the shares that config/mix.yaml asks for, shuffled by its seed."""
    mixed, reused = build_mixed_train_set(store.artifact(heldout_split), load_mix_config(MIX_CONFIG), store.open())
    train = mixed.path / TRAIN
    categories, report = _categories(mixed), MixReport.of(mixed)
    return dg.MaterializeResult(
        value=mixed.ref(heldout_split),
        data_version=dg.DataVersion(mixed.data_version),
        metadata={
            "dagster/row_count": report.total_emitted,
            "num_distinct": report.total_distinct,
            "reused": reused,
            "train": dg.MetadataValue.path(train),
            "parquet": dg.MetadataValue.path(train.with_suffix(".parquet")),
            "report": dg.MetadataValue.path(train.with_suffix(REPORT_SUFFIX)),
            "shares": table(_share_rows(report.sources)),
            "chart": dg.MetadataValue.md(bar_chart("training rows by construct", categories)),
        },
    )


@dg.asset_check(asset=mixed_train_set, blocking=True)
def enough_pairs(mixed_train_set: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """There are at least `min_pairs` different pairs (config/gates.yaml); training on fewer does not begin."""
    required = load_gate_policy(GATE_POLICY).min_pairs
    num_pairs = MixReport.of(store.artifact(mixed_train_set)).total_distinct
    return dg.AssetCheckResult(passed=num_pairs >= required, metadata={"num_pairs": num_pairs, "min_pairs": required})


@dg.asset_check(asset=mixed_train_set, blocking=True)
def mixed_rows_accounted_for(mixed_train_set: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Every row of every source is used or dropped with a reason, and the file holds what the report says."""
    mixed = store.artifact(mixed_train_set)
    with (mixed.path / TRAIN).open("rb") as lines:
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
    """No source is more than `max_share_error` away from its share (config/gates.yaml); otherwise a warning."""
    allowed = load_gate_policy(GATE_POLICY).max_share_error
    sources = MixReport.of(store.artifact(mixed_train_set)).sources
    errors = {source.path: abs(source.share_of_output - source.requested_share) for source in sources}
    return dg.AssetCheckResult(
        passed=max(errors.values()) <= allowed,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"max_share_error": allowed, **{f"error/{path}": round(error, 4) for path, error in errors.items()}},
    )


def _categories(mixed: Artifact) -> dict[str, int]:
    with (mixed.path / TRAIN).open("rb") as lines:
        counts = statistics_of(lines)["counts"]["category"]
    others = [name for name in sorted(counts) if name not in CONSTRUCTS]
    return {name: counts.get(name, 0) for name in (*CONSTRUCTS, *others)}


def _share_rows(sources: Iterable[SourceReport]) -> list[dict[str, Any]]:
    return [
        {
            "source": source.path,
            "rows": source.input_lines,
            "distinct": source.distinct_lines,
            "repeats": f"{source.repeats:.2f}",
            "requested": f"{source.requested_share:.3f}",
            "achieved": f"{source.share_of_output:.3f}",
            "skipped": str(source.skipped_reason or ""),
        }
        for source in sources
    ]
