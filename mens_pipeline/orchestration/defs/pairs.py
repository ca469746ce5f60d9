"""The validated pairs, and the checks that there are enough of them and none went missing."""

from typing import Any

import dagster as dg

from mens_pipeline.corpus.extracted_corpus import KIND as CORPUS
from mens_pipeline.corpus.shares import share_text
from mens_pipeline.corpus.validated_pairs import KIND, PAIRS, QUARANTINE, build_validated_pairs
from mens_pipeline.evaluation.policy import load_gate_policy
from mens_pipeline.orchestration.charts import bar_chart
from mens_pipeline.orchestration.defs.extraction import extracted_corpus
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.settings import PROJECT_ROOT


@dg.asset(group_name="corpus", deps=[extracted_corpus], kinds={"json"}, code_version="1")
def validated_pairs(store: ArtifactStoreResource) -> dg.MaterializeResult[Any]:
    """A request and its answer for each record of the corpus; schema, code and duplicates checked, rest quarantined.

    An unchanged corpus gives the pairs it gave before.
    """
    pairs, reused = build_validated_pairs(store.latest(CORPUS), store.open())
    validation = pairs.manifest["validation"]
    return dg.MaterializeResult(
        data_version=dg.DataVersion(pairs.manifest["outputs"][PAIRS]["sha256"]),
        metadata={
            "dagster/row_count": pairs.manifest["num_pairs"],
            "reused": reused,
            "kept": share_text(validation["kept"], validation["seen"]),
            "pairs": dg.MetadataValue.path(pairs.path / PAIRS),
            "quarantine": dg.MetadataValue.path(pairs.path / QUARANTINE),
            **{f"rejected/{reason}": count for reason, count in validation["rejected"].items()},
            **{f"lane/{lane}": count for lane, count in pairs.manifest["lanes"].items()},
            "chart": dg.MetadataValue.md(bar_chart("pairs by category", pairs.manifest["categories"])),
        },
    )


@dg.asset_check(asset=validated_pairs, blocking=True)
def rows_accounted_for(store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Every pair that was made is kept or quarantined with a reason."""
    validation = store.latest(KIND).manifest["validation"]
    missing = validation["seen"] - validation["kept"] - sum(validation["rejected"].values())
    return dg.AssetCheckResult(passed=missing == 0, metadata={"unaccounted": missing})


@dg.asset_check(asset=validated_pairs, blocking=True)
def enough_pairs(store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """There are at least `min_pairs` pairs (config/gates.yaml); training on fewer does not begin."""
    required = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml").min_pairs
    num_pairs = store.latest(KIND).manifest["num_pairs"]
    return dg.AssetCheckResult(passed=num_pairs >= required, metadata={"num_pairs": num_pairs, "min_pairs": required})
