"""The workspace as it is read, and the check that its programs are Vox."""

from typing import Any, Final

import dagster as dg

from mens_pipeline.corpus.extract.source_report import SourceReport
from mens_pipeline.corpus.extract.workspace_snapshot import STAGE, build_workspace_snapshot, source_report_in
from mens_pipeline.corpus.schema.shares import share_text
from mens_pipeline.language.fingerprint import grammar_fingerprint
from mens_pipeline.orchestration.choices import OWNERS
from mens_pipeline.orchestration.experiment import choices_of
from mens_pipeline.orchestration.failures import plainly
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.orchestration.resources.compute import Compute
from mens_pipeline.orchestration.resources.telemetry import Telemetry
from mens_pipeline.orchestration.resources.workspace import VoxWorkspace
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.settings import GATE_POLICY
from mens_pipeline.storage.store import ArtifactRef

_MOST_ROWS: Final = 50
_TRAINED: Final = dg.AssetKey("qlora_adapter")


@dg.asset(
    group_name="sources",
    kinds={"vox", "markdown", "sql"},
    owners=OWNERS,
    code_version=STAGE.code_version,
)
@plainly
def workspace_snapshot(
    context: dg.AssetExecutionContext,
    workspace: VoxWorkspace,
    telemetry: Telemetry,
    compute: Compute,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Pin by hash what is read: programs, pages, commit, and the newest rows of the telemetry table if there is one.

    The corpus is extracted from exactly this, or not at all. What has not changed is not parsed again. In a run that
    trains, its choices are resolved first: a mistake in them shows before anything is made.
    """
    if _TRAINED in context.job_def.asset_layer.executable_asset_keys:
        choices_of(context, compute.resolve())
    query = telemetry.query()
    snapshot, reused = build_workspace_snapshot(workspace.folder(), workspace.contents, store.open(), query)
    report, manifest = source_report_in(snapshot), snapshot.manifest
    return dg.MaterializeResult(
        value=snapshot.ref(),
        data_version=dg.DataVersion(snapshot.data_version),
        metadata={
            "reused": reused,
            "num_programs": report.num_files,
            "num_bytes": report.num_bytes,
            "num_pages": manifest["num_pages"],
            "folder": dg.MetadataValue.path(workspace.folder()),
            "commit": str(manifest["inputs"]["commit"]),
            "telemetry_table": query.table if query is not None else "none",
            "grammar_fingerprint": grammar_fingerprint()[:12],
        },
    )


@dg.asset_check(asset=workspace_snapshot, blocking=True)
def source_parse_rate(workspace_snapshot: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that at least `min_source_parse_rate` (config/gates.yaml) of the golden programs parse; none fail."""
    report = source_report_in(store.artifact(workspace_snapshot))
    return dg.AssetCheckResult(
        passed=is_accepted(report), metadata=_metadata(report, load_gate_policy(GATE_POLICY).min_source_parse_rate)
    )


def is_accepted(report: SourceReport) -> bool:
    """Whether enough golden programs of a workspace parse."""
    rate = report.parse_rate
    return rate is not None and rate >= load_gate_policy(GATE_POLICY).min_source_parse_rate


def _metadata(report: SourceReport, required: float) -> dict[str, dg.MetadataValue]:
    rejected = [
        dg.TableRecord({"file": file.path, "line": file.line, "code": file.code, "message": file.message})
        for file in report.rejected[:_MOST_ROWS]
    ]
    constructs = [
        dg.TableRecord({"construct": name, "declarations": count}) for name, count in report.constructs.items()
    ]
    present = len(report.constructs) - len(report.missing_constructs)
    metadata: dict[str, dg.MetadataValue] = {
        "accepted": dg.MetadataValue.text(share_text(report.num_accepted, report.num_golden)),
        "min_source_parse_rate": dg.MetadataValue.float(required),
        "num_rejected": dg.MetadataValue.int(len(report.rejected)),
        "constructs_present": dg.MetadataValue.text(share_text(present, len(report.constructs))),
        "constructs": dg.MetadataValue.table(constructs),
    }
    if report.parse_rate is not None:
        metadata["source_parse_rate"] = dg.MetadataValue.float(round(report.parse_rate, 4))
    if rejected:
        metadata["first_rejected_files"] = dg.MetadataValue.table(rejected)
    return metadata
