"""The synthetic corpus: tasks with a behaviour, and programs for what the workspace shows least."""

from typing import Any

import dagster as dg

from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.schema.shares import share_text
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.corpus.synthesis.generate import SynthesisDrop
from mens_pipeline.corpus.synthesis.synthetic_corpus import PAIRS, REPORT, STAGE, build_synthetic_corpus
from mens_pipeline.orchestration.charts import bar_chart
from mens_pipeline.orchestration.choices import OWNERS, configured
from mens_pipeline.orchestration.columns import columns_of
from mens_pipeline.orchestration.failures import plainly
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.settings import PIPELINE_CONFIG, load_settings
from mens_pipeline.storage.store import ArtifactRef


@dg.asset(
    group_name="corpus",
    kinds={"json"},
    owners=OWNERS,
    metadata=columns_of(TrainingPair),
    code_version=configured(STAGE, PIPELINE_CONFIG),
)
@plainly
def synthetic_corpus(extracted_corpus: ArtifactRef, store: ArtifactStoreResource) -> dg.MaterializeResult[Any]:
    """Generate executable tasks, templates, combinations, mutations and repairs that parse and pass their tests.

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
            "pairs": dg.MetadataValue.path(synthetic.path / PAIRS),
            "report": dg.MetadataValue.path(synthetic.path / REPORT),
            **{f"kind/{kind}": share_text(c["count"], report["num_pairs"]) for kind, c in report["kinds"].items()},
            **{str(reason): sum(report[reason].values()) for reason in SynthesisDrop},
            "constructs": dg.MetadataValue.table(_rows(report["constructs"], report["num_pairs"])),
            "chart": dg.MetadataValue.md(bar_chart("synthetic pairs by construct", constructs)),
        },
    )


@dg.asset_check(asset=synthetic_corpus, blocking=True)
def as_many_as_asked(synthetic_corpus: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """There are exactly as many pairs as config/pipeline.yaml asks for."""
    asked = load_pipeline_config(PIPELINE_CONFIG).synthesize.limit
    num_pairs = store.artifact(synthetic_corpus).manifest["num_pairs"]
    return dg.AssetCheckResult(passed=num_pairs == asked, metadata={"num_pairs": num_pairs, "asked": asked})


def _rows(constructs: dict[str, Any], num_pairs: int) -> list[dg.TableRecord]:
    return [
        dg.TableRecord({"construct": name, "before": c["before"], "made": share_text(c["count"], num_pairs)})
        for name, c in constructs.items()
    ]
