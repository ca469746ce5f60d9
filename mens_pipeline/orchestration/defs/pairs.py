"""The synthetic corpus and the validated pairs, and the checks that none is missing."""

from typing import Any

import dagster as dg

from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.curate.validated_pairs import (
    QUARANTINE,
    STAGE,
    PairsDetails,
    RowCounts,
    build_validated_pairs,
)
from mens_pipeline.corpus.extract.extracted_corpus import TELEMETRY
from mens_pipeline.corpus.schema.account import share_text
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.corpus.synthesis.synthetic_corpus import PAIRS as SYNTHETIC_PAIRS
from mens_pipeline.corpus.synthesis.synthetic_corpus import (
    REPORT,
    SynthesisDrop,
    SyntheticDetails,
    build_synthetic_corpus,
)
from mens_pipeline.corpus.synthesis.synthetic_corpus import STAGE as SYNTHESIS
from mens_pipeline.orchestration.choices import OWNERS, configured
from mens_pipeline.orchestration.failures import plainly
from mens_pipeline.orchestration.metadata import bar_chart, columns_of, table
from mens_pipeline.orchestration.resources import ArtifactStoreResource
from mens_pipeline.settings import PIPELINE_CONFIG, load_settings
from mens_pipeline.storage.store import ArtifactRef


@dg.asset(
    group_name="corpus",
    kinds={"json"},
    owners=OWNERS,
    metadata=columns_of(TrainingPair),
    code_version=configured(SYNTHESIS, PIPELINE_CONFIG),
)
@plainly
def synthetic_corpus(extracted_corpus: ArtifactRef, store: ArtifactStoreResource) -> dg.MaterializeResult[Any]:
    """Generate executable tasks, templates and combinations that parse and pass their tests.

    config/pipeline.yaml says how many of each kind. The same corpus and seed give the same bytes.
    """
    policy = load_pipeline_config(PIPELINE_CONFIG).synthesize
    synthetic, reused = build_synthetic_corpus(
        store.artifact(extracted_corpus), policy, store.open(), workers=load_settings().num_workers
    )
    report = synthetic.manifest
    constructs = {name: counts["count"] for name, counts in report["constructs"].items()}
    return dg.MaterializeResult(
        value=synthetic.ref(extracted_corpus),
        data_version=dg.DataVersion(synthetic.data_version),
        metadata={
            "dagster/row_count": report["num_pairs"],
            "reused": reused,
            "pairs": dg.MetadataValue.path(synthetic.path / SYNTHETIC_PAIRS),
            "report": dg.MetadataValue.path(synthetic.path / REPORT),
            **{f"kind/{kind}": share_text(c["count"], report["num_pairs"]) for kind, c in report["kinds"].items()},
            **{str(reason): sum(report[reason].values()) for reason in SynthesisDrop},
            "constructs": table(_construct_rows(report["constructs"], report["num_pairs"])),
            "chart": dg.MetadataValue.md(bar_chart("synthetic pairs by construct", constructs)),
        },
    )


@dg.asset_check(asset=synthetic_corpus, blocking=True)
def as_many_as_asked(synthetic_corpus: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """There are exactly as many pairs as config/pipeline.yaml asks for."""
    asked = load_pipeline_config(PIPELINE_CONFIG).synthesize.limit
    num_pairs = SyntheticDetails.of(store.artifact(synthetic_corpus)).num_pairs
    return dg.AssetCheckResult(passed=num_pairs == asked, metadata={"num_pairs": num_pairs, "asked": asked})


def _construct_rows(constructs: dict[str, Any], num_pairs: int) -> list[dict[str, Any]]:
    return [
        {"construct": name, "before": c["before"], "made": share_text(c["count"], num_pairs)}
        for name, c in constructs.items()
    ]


@dg.asset(
    group_name="corpus",
    kinds={"json"},
    owners=OWNERS,
    metadata=columns_of(TrainingPair),
    code_version=configured(STAGE, PIPELINE_CONFIG),
)
@plainly
def validated_pairs(
    extracted_corpus: ArtifactRef, synthetic_corpus: ArtifactRef, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    """Make pairs of prompt and completion; what fails schema, code or repetition checks is dropped with a reason.

    An unchanged corpus gives the pairs it gave before.
    """
    policy = load_pipeline_config(PIPELINE_CONFIG).validate_
    corpus = store.artifact(extracted_corpus)
    others = [store.artifact(synthetic_corpus).path / SYNTHETIC_PAIRS, corpus.path / TELEMETRY]
    pairs, reused = build_validated_pairs(corpus, others, policy, store.open())
    details = PairsDetails.of(pairs)
    return dg.MaterializeResult(
        value=pairs.ref(extracted_corpus, synthetic_corpus),
        data_version=dg.DataVersion(pairs.data_version),
        metadata={
            "dagster/row_count": sum(details.num_pairs.values()),
            "reused": reused,
            "folder": dg.MetadataValue.path(pairs.path),
            "quarantine": dg.MetadataValue.path(pairs.path / QUARANTINE),
            "validation": table(_rows(details.validation)),
            "functions_observed": share_text(details.behaviour.observed, details.behaviour.functions),
            **{f"not_observed/{reason}": count for reason, count in details.behaviour.without.items()},
            **{f"pairs/{name}": count for name, count in details.num_pairs.items()},
            **{f"lane/{lane}": count for lane, count in details.lanes.items()},
            "chart": dg.MetadataValue.md(bar_chart("pairs by category", details.categories)),
        },
    )


@dg.asset_check(asset=validated_pairs, blocking=True)
def rows_accounted_for(validated_pairs: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Every row of every file is kept or quarantined with a reason; those kept with a semantic error are counted."""
    validation = PairsDetails.of(store.artifact(validated_pairs)).validation
    missing = {name: v.seen - v.kept - sum(v.rejected.values()) for name, v in validation.items()}
    warned = {f"{reason}/{name}": n for name, v in validation.items() for reason, n in v.warned.items()}
    unaccounted = {f"unaccounted/{name}": count for name, count in missing.items()}
    return dg.AssetCheckResult(passed=not any(missing.values()), metadata={**unaccounted, **warned})


def _rows(validation: dict[str, RowCounts]) -> list[dict[str, Any]]:
    return [
        {
            "file": name,
            "kept": share_text(v.kept, v.seen),
            "rejected": ", ".join(f"{count} {reason}" for reason, count in v.rejected.items() if count) or "none",
            "warned": ", ".join(f"{count} {reason}" for reason, count in v.warned.items() if count) or "none",
        }
        for name, v in validation.items()
    ]
