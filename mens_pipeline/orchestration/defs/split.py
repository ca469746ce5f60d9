"""The held-out set, and the checks that nothing similar to it trains."""

from typing import Any

import dagster as dg

from mens_pipeline.corpus.curate.heldout_overlap import build_heldout_overlap
from mens_pipeline.corpus.curate.heldout_split import ASIDE, HELDOUT, STAGE, build_heldout_split
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.curate.validated_pairs import KIND as PAIRS
from mens_pipeline.corpus.schema.shares import share_text
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.evaluation.benchmark import protected_pairs
from mens_pipeline.orchestration.choices import OWNERS, configured
from mens_pipeline.orchestration.columns import columns_of
from mens_pipeline.orchestration.failures import plainly
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.settings import PIPELINE_CONFIG, load_settings
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
    counts = split.manifest
    return dg.MaterializeResult(
        value=split.ref(validated_pairs),
        data_version=dg.DataVersion(split.data_version),
        metadata={
            "dagster/row_count": sum(counts["train"].values()),
            "reused": reused,
            "heldout": dg.MetadataValue.path(split.path / HELDOUT),
            "aside": dg.MetadataValue.path(split.path / ASIDE),
            "heldout_files": share_text(counts["num_heldout_groups"], counts["num_groups"]),
            "num_heldout": counts["heldout"],
            "judging_files": counts["num_judging_groups"],
            "exam": counts["shortfall"] or "as large as asked for",
            **{f"train/{name}": count for name, count in counts["train"].items()},
            **{f"aside/{reason}": count for reason, count in counts["aside"].items()},
            **{f"tested_functions/{status}": count for status, count in counts["tested_functions"].items()},
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
    counts = build_heldout_overlap(store.artifact(heldout_split), policy, store.open(), protected).manifest
    shared = {name: counts[name] for name in ("pairs_of_heldout_files", "near_copies", "same_behaviour")}
    metadata = {**{name: counts[name] for name in ("num_train", "num_heldout")}, **shared}
    return dg.AssetCheckResult(passed=not any(shared.values()), metadata=metadata)


@dg.asset_check(asset=heldout_split, blocking=True)
def pairs_accounted_for(heldout_split: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Every validated pair trains, judges, or is set aside with a reason."""
    split = store.artifact(heldout_split)
    seen = _num_pairs(store.artifact(heldout_split.of(PAIRS)), split)
    counts = split.manifest
    missing = seen - sum(counts["train"].values()) - counts["heldout"] - sum(counts["aside"].values())
    return dg.AssetCheckResult(passed=missing == 0, metadata={"num_pairs": seen, "unaccounted": missing})


def _num_pairs(pairs: Artifact, split: Artifact) -> int:
    return sum(pairs.manifest["num_pairs"][name] for name in split.manifest["train"])
