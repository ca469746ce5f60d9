"""The programs of the workspace, and the check that they are Vox."""

import dagster as dg

from mens_pipeline.corpus.extract.source_report import SourceReport, report_sources
from mens_pipeline.corpus.schema.shares import share_text
from mens_pipeline.corpus.telemetry.table import telemetry_fingerprint
from mens_pipeline.language.fingerprint import grammar_fingerprint
from mens_pipeline.orchestration.resources.telemetry import Telemetry
from mens_pipeline.orchestration.resources.workspace import VoxWorkspace
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.settings import GATE_POLICY

_MOST_ROWS = 50


@dg.observable_source_asset(
    group_name="sources",
    tags={"dagster/kind/vox": ""},
    description="The `.vox` and `.vox.ui` files of the workspace; the hash of their contents is the data version.",
)
def vox_sources(workspace: VoxWorkspace) -> dg.ObserveResult:
    """Observe the programs of the workspace."""
    files = workspace.files()
    return dg.ObserveResult(
        data_version=dg.DataVersion(workspace.fingerprint(files)),
        metadata={
            "num_files": len(files),
            "num_bytes": sum(path.stat().st_size for path in files),
            "folder": dg.MetadataValue.path(workspace.folder()),
            "grammar_fingerprint": grammar_fingerprint(),
        },
    )


@dg.observable_source_asset(
    group_name="sources",
    tags={"dagster/kind/markdown": ""},
    description="The Markdown pages of the workspace; the hash of their contents is the data version.",
)
def docs_sources(workspace: VoxWorkspace) -> dg.ObserveResult:
    """Observe the pages of the workspace."""
    pages = workspace.pages()
    return dg.ObserveResult(
        data_version=dg.DataVersion(workspace.fingerprint(pages)),
        metadata={"num_files": len(pages), "folder": dg.MetadataValue.path(workspace.folder())},
    )


@dg.observable_source_asset(
    group_name="sources",
    tags={"dagster/kind/sql": ""},
    description="The telemetry table that MENS_TELEMETRY_URL names; the hash of its newest rows is the data version.",
)
def telemetry_source(telemetry: Telemetry) -> dg.ObserveResult:
    """Observe the telemetry table; without a database there is nothing to observe."""
    query = telemetry.query()
    fingerprint = "no database" if query is None else telemetry_fingerprint(query)
    return dg.ObserveResult(
        data_version=dg.DataVersion(fingerprint),
        metadata={"is_configured": query is not None, "table": query.table if query is not None else "none"},
    )


@dg.asset_check(asset=vox_sources, blocking=True)
def source_parse_rate(workspace: VoxWorkspace) -> dg.AssetCheckResult:
    """Check that at least `min_source_parse_rate` of the files (config/gates.yaml) parse; no file is a failure."""
    policy = load_gate_policy(GATE_POLICY)
    report = report_sources(workspace.contents())
    rate = report.parse_rate
    return dg.AssetCheckResult(
        passed=rate is not None and rate >= policy.min_source_parse_rate,
        metadata=_metadata(report, policy.min_source_parse_rate),
    )


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
        "accepted": dg.MetadataValue.text(share_text(report.num_accepted, report.num_files)),
        "min_source_parse_rate": dg.MetadataValue.float(required),
        "num_rejected": dg.MetadataValue.int(len(report.rejected)),
        "constructs_present": dg.MetadataValue.text(share_text(present, len(report.constructs))),
        "constructs": dg.MetadataValue.table(constructs),
    }
    if report.parse_rate is not None:
        metadata["source_parse_rate"] = dg.MetadataValue.float(report.parse_rate)
    if rejected:
        metadata["first_rejected_files"] = dg.MetadataValue.table(rejected)
    return metadata
