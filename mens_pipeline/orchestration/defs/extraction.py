"""The extracted corpus, and the checks that nothing went missing and nothing is unheard of."""

import json
from collections import Counter
from typing import Any

import dagster as dg
from pydantic import Field

from mens_pipeline.corpus.extract.extracted_corpus import RECORDS, REPORT, STAGE, build_extracted_corpus
from mens_pipeline.corpus.extract.workspace_snapshot import source_report_in
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.corpus.schema.shares import share_text
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline.orchestration.charts import bar_chart
from mens_pipeline.orchestration.choices import OWNERS
from mens_pipeline.orchestration.columns import columns_of
from mens_pipeline.orchestration.defs.sources import is_accepted
from mens_pipeline.orchestration.failures import plainly
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.orchestration.resources.telemetry import Telemetry
from mens_pipeline.orchestration.resources.workspace import VoxWorkspace
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.settings import GATE_POLICY, load_settings
from mens_pipeline.storage.store import Artifact, ArtifactRef

_DROP_SCHEMA = dg.TableSchema([dg.TableColumn(name) for name in ("unit", "reason", "dropped")])


class ExtractionConfig(dg.Config):
    """Run configuration of the extraction."""

    full: bool = Field(default=False, description="Extract every file, whatever the latest corpus knows of it.")


@dg.asset(
    group_name="corpus",
    kinds={"json"},
    owners=OWNERS,
    metadata=columns_of(ExtractedRecord),
    code_version=STAGE.code_version,
)
@plainly
def extracted_corpus(  # noqa: PLR0913, PLR0917 - what Dagster injects
    context: dg.AssetExecutionContext,
    config: ExtractionConfig,
    workspace_snapshot: ArtifactRef,
    workspace: VoxWorkspace,
    telemetry: Telemetry,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Cut records of Vox code and prose from the workspace, each with its source, span, hash and verdict.

    Where a telemetry database is named, its rows stand beside them as redacted pairs.

    Whatever does not train is counted with its reason. An unchanged workspace is not extracted again, unless the run
    asks for a full extraction, which must then give the same bytes.
    """
    snapshot = store.artifact(workspace_snapshot)
    if not is_accepted(
        source_report_in(snapshot)
    ):  # also where the corpus is materialised alone, after a snapshot that was refused
        raise RefusedError("workspace_snapshot was refused: see its check source_parse_rate. Mend the programs.")
    corpus, reused = build_extracted_corpus(
        workspace.folder(),
        store.open(),
        load_settings().num_workers,
        telemetry.query(),
        full=config.full,
        pinned=snapshot.manifest["inputs"],
    )
    if reused.differs:
        context.log.warning("a full extraction gave other bytes than before of the same inputs; they took their place")
    return dg.MaterializeResult(
        value=corpus.ref(workspace_snapshot),
        data_version=dg.DataVersion(corpus.data_version),
        metadata={
            "dagster/row_count": corpus.manifest["num_records"],
            "reused": reused.is_whole,
            "full": config.full,
            "differs_from_before": reused.differs,
            "files_known": reused.known,
            "files_extracted": reused.extracted,
            "records": dg.MetadataValue.path(corpus.path / RECORDS),
            "report": dg.MetadataValue.path(corpus.path / REPORT),
            "telemetry": dg.MetadataValue.json(corpus.manifest["telemetry"]),
            "commit": str(corpus.manifest["inputs"]["commit"]),
            "units": dg.MetadataValue.table(_unit_rows(corpus.manifest["units"])),
            "dropped": dg.MetadataValue.table(_drop_rows(corpus.manifest["units"]), schema=_DROP_SCHEMA),
        },
    )


@dg.asset_check(asset=extracted_corpus, blocking=True)
def everything_accounted_for(extracted_corpus: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that what was seen is what was kept plus what was dropped, for programs, pages, sections and blocks."""
    units = store.artifact(extracted_corpus).manifest["units"]
    missing = {unit: c["seen"] - c["kept"] - sum(c["dropped"].values()) for unit, c in units.items()}
    return dg.AssetCheckResult(
        passed=not any(missing.values()), metadata={f"unaccounted_{unit}": count for unit, count in missing.items()}
    )


@dg.asset_check(asset=extracted_corpus, blocking=True)
def corpus_coverage(extracted_corpus: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that the corpus shows at least `min_corpus_coverage` of the constructs that the parser can produce."""
    required = load_gate_policy(GATE_POLICY).min_corpus_coverage
    counts = _construct_counts(store.artifact(extracted_corpus))
    present = sum(count > 0 for count in counts.values())
    missing = [name for name, count in counts.items() if count == 0]
    return dg.AssetCheckResult(
        passed=present / len(counts) >= required,
        metadata={
            "coverage": round(present / len(counts), 4),
            "constructs_present": share_text(present, len(counts)),
            "min_corpus_coverage": required,
            "missing": ", ".join(missing) or "none",
            "chart": dg.MetadataValue.md(bar_chart("records by construct", counts)),
        },
    )


def _construct_counts(corpus: Artifact) -> dict[str, int]:
    counts: Counter[str] = Counter()
    with (corpus.path / RECORDS).open(encoding="utf-8") as lines:
        for line in lines:
            counts.update(json.loads(line)["constructs"].keys())
    return {name: counts[name] for name in CONSTRUCTS}


def _unit_rows(units: dict[str, Any]) -> list[dg.TableRecord]:
    return [
        dg.TableRecord({"unit": unit, "seen": c["seen"], "kept": share_text(c["kept"], c["seen"])})
        for unit, c in units.items()
    ]


def _drop_rows(units: dict[str, Any]) -> list[dg.TableRecord]:
    """Return the number of drops by reason; the report names each."""
    return [
        dg.TableRecord({"unit": unit, "reason": reason, "dropped": count})
        for unit, counts in units.items()
        for reason, count in counts["dropped"].items()
    ]
