"""The train set, and the checks that it is large enough and has the shares that were asked for."""

from typing import Any

import dagster as dg

from mens_pipeline.corpus.curate.mix_config import load_mix_config
from mens_pipeline.corpus.curate.mix_files import REPORT_SUFFIX
from mens_pipeline.corpus.curate.mixed_train_set import STAGE, TRAIN, build_mixed_train_set
from mens_pipeline.corpus.curate.statistics import statistics_of
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline.orchestration.charts import bar_chart
from mens_pipeline.orchestration.choices import OWNERS, configured
from mens_pipeline.orchestration.columns import columns_of
from mens_pipeline.orchestration.failures import plainly
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.settings import GATE_POLICY, MIX_CONFIG
from mens_pipeline.storage.store import Artifact, ArtifactRef


@dg.asset(
    group_name="corpus",
    kinds={"json", "parquet"},
    owners=OWNERS,
    metadata=columns_of(TrainingPair),
    code_version=configured(STAGE, MIX_CONFIG),
)
@plainly
def mixed_train_set(heldout_split: ArtifactRef, store: ArtifactStoreResource) -> dg.MaterializeResult[Any]:
    """Mix what the model is trained on: sources in the shares that config/mix.yaml asks for, shuffled by its seed."""
    mixed, reused = build_mixed_train_set(store.artifact(heldout_split), load_mix_config(MIX_CONFIG), store.open())
    train = mixed.path / TRAIN
    categories = _categories(mixed)
    return dg.MaterializeResult(
        value=mixed.ref(heldout_split),
        data_version=dg.DataVersion(mixed.data_version),
        metadata={
            "dagster/row_count": mixed.manifest["total_emitted"],
            "num_distinct": mixed.manifest["total_distinct"],
            "reused": reused,
            "train": dg.MetadataValue.path(train),
            "parquet": dg.MetadataValue.path(train.with_suffix(".parquet")),
            "report": dg.MetadataValue.path(train.with_suffix(REPORT_SUFFIX)),
            "shares": dg.MetadataValue.table(_share_rows(mixed.manifest["sources"])),
            "chart": dg.MetadataValue.md(bar_chart("training rows by construct", categories)),
        },
    )


@dg.asset_check(asset=mixed_train_set, blocking=True)
def enough_pairs(mixed_train_set: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """There are at least `min_pairs` different pairs (config/gates.yaml); training on fewer does not begin."""
    required = load_gate_policy(GATE_POLICY).min_pairs
    num_pairs = store.artifact(mixed_train_set).manifest["total_distinct"]
    return dg.AssetCheckResult(passed=num_pairs >= required, metadata={"num_pairs": num_pairs, "min_pairs": required})


@dg.asset_check(asset=mixed_train_set, blocking=True)
def mixed_rows_accounted_for(mixed_train_set: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Every row of every source is used or dropped with a reason, and the file holds what the report says."""
    mixed = store.artifact(mixed_train_set)
    with (mixed.path / TRAIN).open("rb") as lines:
        num_rows = sum(1 for _ in lines)
    missing = sum(
        s["input_lines"] - s["distinct_lines"] - sum(s["dropped"].values()) for s in mixed.manifest["sources"]
    )
    emitted = sum(source["emitted_lines"] for source in mixed.manifest["sources"])
    return dg.AssetCheckResult(
        passed=missing == 0 and emitted == num_rows == mixed.manifest["total_emitted"],
        metadata={"unaccounted": missing, "num_rows": num_rows, "emitted": emitted},
    )


@dg.asset_check(asset=mixed_train_set)
def shares_as_asked(mixed_train_set: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """No source is more than `max_share_error` away from its share (config/gates.yaml); otherwise a warning."""
    allowed = load_gate_policy(GATE_POLICY).max_share_error
    sources = store.artifact(mixed_train_set).manifest["sources"]
    errors = {source["path"]: abs(source["share_of_output"] - source["requested_share"]) for source in sources}
    return dg.AssetCheckResult(
        passed=max(errors.values()) <= allowed,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"max_share_error": allowed, **{f"error/{path}": round(error, 4) for path, error in errors.items()}},
    )


def _categories(mixed: Artifact) -> dict[str, int]:
    with (mixed.path / TRAIN).open("rb") as lines:
        counts = statistics_of(lines).counts["category"]
    others = [name for name in sorted(counts) if name not in CONSTRUCTS]
    return {name: counts[name] for name in (*CONSTRUCTS, *others)}


def _share_rows(sources: list[dict[str, Any]]) -> list[dg.TableRecord]:
    return [
        dg.TableRecord(
            {
                "source": source["path"],
                "rows": source["input_lines"],
                "distinct": source["distinct_lines"],
                "repeats": f"{source['repeats']:.2f}",
                "requested": f"{source['requested_share']:.3f}",
                "achieved": f"{source['share_of_output']:.3f}",
                "skipped": source["skipped_reason"] or "",
            }
        )
        for source in sources
    ]
