"""The validated pairs, and the check that none went missing."""

from typing import Any

import dagster as dg

from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.curate.validated_pairs import QUARANTINE, STAGE, build_validated_pairs
from mens_pipeline.corpus.extract.extracted_corpus import TELEMETRY
from mens_pipeline.corpus.schema.shares import share_text
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.corpus.synthesis.synthetic_corpus import PAIRS as SYNTHETIC_PAIRS
from mens_pipeline.orchestration.charts import bar_chart
from mens_pipeline.orchestration.choices import OWNERS, configured
from mens_pipeline.orchestration.columns import columns_of
from mens_pipeline.orchestration.failures import plainly
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.settings import PIPELINE_CONFIG
from mens_pipeline.storage.store import ArtifactRef


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
    manifest = pairs.manifest
    behaviour = manifest["behaviour"]
    return dg.MaterializeResult(
        value=pairs.ref(extracted_corpus, synthetic_corpus),
        data_version=dg.DataVersion(pairs.data_version),
        metadata={
            "dagster/row_count": sum(manifest["num_pairs"].values()),
            "reused": reused,
            "folder": dg.MetadataValue.path(pairs.path),
            "quarantine": dg.MetadataValue.path(pairs.path / QUARANTINE),
            "validation": dg.MetadataValue.table(_rows(manifest["validation"])),
            "functions_observed": share_text(behaviour["observed"], behaviour["functions"]),
            **{f"not_observed/{reason}": count for reason, count in behaviour["without"].items()},
            **{f"pairs/{name}": count for name, count in manifest["num_pairs"].items()},
            **{f"lane/{lane}": count for lane, count in manifest["lanes"].items()},
            "chart": dg.MetadataValue.md(bar_chart("pairs by category", manifest["categories"])),
        },
    )


@dg.asset_check(asset=validated_pairs, blocking=True)
def rows_accounted_for(validated_pairs: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Every row of every file is kept or quarantined with a reason; those kept with a semantic error are counted."""
    validation = store.artifact(validated_pairs).manifest["validation"]
    missing = {name: v["seen"] - v["kept"] - sum(v["rejected"].values()) for name, v in validation.items()}
    warned = {f"{reason}/{name}": n for name, v in validation.items() for reason, n in v["warned"].items()}
    unaccounted = {f"unaccounted/{name}": count for name, count in missing.items()}
    return dg.AssetCheckResult(passed=not any(missing.values()), metadata={**unaccounted, **warned})


def _rows(validation: dict[str, Any]) -> list[dg.TableRecord]:
    return [
        dg.TableRecord(
            {
                "file": name,
                "kept": share_text(v["kept"], v["seen"]),
                "rejected": ", ".join(f"{count} {reason}" for reason, count in v["rejected"].items() if count)
                or "none",
                "warned": ", ".join(f"{count} {reason}" for reason, count in v["warned"].items() if count) or "none",
            }
        )
        for name, v in validation.items()
    ]
