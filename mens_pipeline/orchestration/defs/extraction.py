"""The snapshot of the workspace and the corpus extracted from it, with their checks."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import ceil, floor
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import dagster as dg
from pydantic import Field

from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config, load_source_policy
from mens_pipeline.corpus.extract.extracted_corpus import (
    RECORDS,
    REPORT,
    SNAPSHOT_STAGE,
    STAGE,
    CorpusDetails,
    SnapshotDetails,
    SnapshotParams,
    WorkspaceReport,
    build_extracted_corpus,
    source_report_in,
)
from mens_pipeline.corpus.extract.forgotten import FORGOTTEN
from mens_pipeline.corpus.extract.sources import find_problems
from mens_pipeline.corpus.schema.account import Unit, count_lost, share_text
from mens_pipeline.corpus.schema.reasons import DropReason
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import CONSTRUCTS, grammar_fingerprint
from mens_pipeline.orchestration.asset import blocking_check, declare_asset, version_with_config
from mens_pipeline.orchestration.charts import bar_chart
from mens_pipeline.orchestration.choices import choices_of
from mens_pipeline.orchestration.metadata import YOURS, count_reasons, required_by, table
from mens_pipeline.orchestration.resources import (
    ArtifactStoreResource,
    Compute,
    Telemetry,
    VoxWorkspace,
    find_pools,
    hand_over,
)
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.settings import GATE_POLICY, PIPELINE_CONFIG
from mens_pipeline.storage.files import find_little_room
from mens_pipeline.storage.kinds import CorpusFile
from mens_pipeline.storage.store import Artifact, ArtifactRef

_MOST_ROWS: Final = 50
_CONFIGURATION: Final = (PIPELINE_CONFIG, PIPELINE_CONFIG.with_name(FORGOTTEN))
_TRAINED: Final = dg.AssetKey("qlora_adapter")


@declare_asset("corpus", "vox", "markdown", "sql", version=SNAPSHOT_STAGE.code_version)
def workspace_snapshot(
    context: dg.AssetExecutionContext,
    workspace: VoxWorkspace,
    telemetry: Telemetry,
    compute: Compute,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Pin the inputs by hash: programs, pages, commit, and the newest telemetry rows if there is a table.

    The corpus is extracted from exactly these inputs. Unchanged files are not parsed again. A run that trains resolves
    its choices here, so that a mistake shows before anything is made. Warns if a disk is nearly full.
    """
    if _TRAINED in context.job_def.asset_layer.executable_asset_keys:
        choices_of(context, compute.resolve(trains=True))
    if problem := find_little_room(store.open().root, Path(context.instance.root_directory)):
        context.log.warning(problem)
    query = telemetry.query()
    include = load_pipeline_config(PIPELINE_CONFIG).include
    params = SnapshotParams.pin(workspace.folder(), query, include, contents=workspace.contents)
    snapshot, reused = SNAPSHOT_STAGE.build(store.open(), params)
    report = source_report_in(snapshot)
    for problem in find_problems(params.checkouts):
        context.log.warning(problem)
    rejected = [(DropReason.REJECTED, f"{file.path}:{file.line} {file.code}") for file in report.rejected]
    metadata: dict[str, Any] = {
        YOURS: ", ".join((f"{report.num_files} programs", *count_reasons(rejected))),
        "reused": reused,
        "num_programs": report.num_files,
        "num_bytes": report.num_bytes,
        "num_other_format": report.num_other,
        "num_pages": SnapshotDetails.of(snapshot).num_pages,
        "folder": dg.MetadataValue.path(workspace.folder()),
        "commit": str(snapshot.inputs["commit"])[:12],
        "checkouts": dg.MetadataValue.json([origin.model_dump() for origin in params.checkouts]),
        "telemetry_table": query.table if query is not None else "none",
        "grammar_fingerprint": grammar_fingerprint()[:12],
    }
    return hand_over(snapshot, metadata=metadata)


@blocking_check(workspace_snapshot)
def source_parse_rate(workspace_snapshot: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that there are golden programs and at least `min_source_parse_rate` (config/gates.yaml) of them parse."""
    report = source_report_in(store.artifact(workspace_snapshot))
    return dg.AssetCheckResult(passed=is_accepted(report), metadata=_metadata(report))


_NO_PROGRAMS: Final = "No .vox files to learn from. Does MENS_SOURCE_ROOT, or --source-root, name the workspace?"


def is_accepted(report: WorkspaceReport) -> bool:
    """Return whether enough golden programs of a workspace parse."""
    rate = report.parse_rate
    return rate is not None and rate >= load_gate_policy(GATE_POLICY).min_source_parse_rate


def _metadata(report: WorkspaceReport) -> dict[str, Any]:
    rejected = [
        {"file": file.path, "line": file.line, "code": file.code, "message": file.message}
        for file in report.rejected[:_MOST_ROWS]
    ]
    # The UI sorts the metadata of a check by name.
    return {
        **({"broken_files": table(rejected)} if rejected else {}),
        "golden_accepted": dg.MetadataValue.text(share_text(report.num_accepted, report.num_golden)),
        **({} if report.num_golden else {"advice": _NO_PROGRAMS}),
        **({} if report.parse_rate is None else {"measured": dg.MetadataValue.float(round(report.parse_rate, 4))}),
        **required_by("min_source_parse_rate"),
    }


class ExtractionConfig(dg.Config):
    """Run configuration of the extraction."""

    full: bool = Field(default=False, description="Extract every file again, even unchanged ones.")


@declare_asset("corpus", "json", version=version_with_config(STAGE, *_CONFIGURATION), rows=ExtractedRecord)
def extracted_corpus(  # noqa: PLR0913, PLR0917 - injected by Dagster
    context: dg.AssetExecutionContext,
    config: ExtractionConfig,
    workspace_snapshot: ArtifactRef,
    workspace: VoxWorkspace,
    telemetry: Telemetry,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Extract records of Vox code and prose, each with its source, span, hash and verdict.

    Rows of a telemetry database become redacted pairs. Everything dropped is counted with a reason. An unchanged
    workspace is not extracted again; a full extraction must give the same bytes.
    """
    snapshot = store.artifact(workspace_snapshot)
    if not is_accepted(source_report_in(snapshot)):  # if it is materialised alone after a refusal
        raise RefusedError("workspace_snapshot was refused: see its check source_parse_rate. Correct the programs.")
    policy = load_pipeline_config(PIPELINE_CONFIG)
    corpus, reused = build_extracted_corpus(
        workspace.folder(),
        store.open(),
        find_pools().batches,
        telemetry.query(),
        full=config.full,
        redaction=policy.redaction,
        licences=load_source_policy(PIPELINE_CONFIG),
        include=policy.include,
        pinned=snapshot.inputs,
    )
    if reused.differs:
        context.log.warning("a full extraction of the same inputs gave different bytes, which replace the old ones")
    details = CorpusDetails.of(corpus)
    units = details.units
    metadata: dict[str, Any] = {
        YOURS: "; ".join(_account_for_files(corpus)),
        "dagster/row_count": details.num_records,
        "redactions": dg.MetadataValue.json(details.redactions),
        "reused": reused.is_whole,
        "full": config.full,
        "differs_from_before": reused.differs,
        "files_known": reused.known,
        "files_extracted": reused.extracted,
        "records": dg.MetadataValue.path(corpus.file(RECORDS)),
        "report": dg.MetadataValue.path(corpus.file(REPORT)),
        "telemetry": dg.MetadataValue.json(details.telemetry or {}),
        "commit": str(details.inputs.commit)[:12],
        "units": table({"unit": unit, "seen": c.seen, "kept": share_text(c.kept, c.seen)} for unit, c in units.items()),
    }
    return hand_over(corpus, workspace_snapshot, metadata=metadata)


def _account_for_files(corpus: Artifact) -> Iterator[str]:
    dropped: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    with corpus.file(CorpusFile.FILES).open(encoding="utf-8") as lines:
        for path, drops, redacted in map(itemgetter("path", "drops", "redacted"), map(json.loads, lines)):
            for drop in drops:
                code = f" {drop['detail'].partition(':')[0]}" if drop["reason"] == DropReason.REJECTED else ""
                dropped[drop["unit"]].append((drop["reason"], f"{path}:{drop['line']}{code}"))
            dropped[YOURS] += [(f"{kind} redacted", path) for kind, count in redacted.items() for _ in range(count)]
    units = CorpusDetails.of(corpus).units
    for unit in Unit:
        if seen := units[unit].seen:
            noun = f"{unit.replace('_', ' ')}{'s' * (seen > 1)}"
            yield ", ".join((f"{seen} {noun}: {units[unit].kept} read", *count_reasons(dropped[unit])))
    yield from count_reasons(dropped[YOURS])


@blocking_check(extracted_corpus)
def everything_accounted_for(extracted_corpus: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that all programs, pages, sections and blocks seen are either kept or dropped with a reason."""
    units = CorpusDetails.of(store.artifact(extracted_corpus)).units
    missing = {unit: count_lost(c.seen, c.kept, c.dropped) for unit, c in units.items()}
    return dg.AssetCheckResult(
        passed=not any(missing.values()), metadata={f"unaccounted_{unit}": count for unit, count in missing.items()}
    )


@blocking_check(extracted_corpus)
def corpus_coverage(extracted_corpus: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that the corpus covers at least `min_corpus_coverage` of the constructs of the parser."""
    required = required_by("min_corpus_coverage")
    counts = _construct_counts(store.artifact(extracted_corpus))
    present = sum(count > 0 for count in counts.values())
    missing = [name for name, count in counts.items() if count == 0]
    passed = present / len(counts) >= required["required"]
    programs = CorpusDetails.of(store.artifact(extracted_corpus)).units[Unit.VOX_FILE].kept
    needed = ceil(required["required"] * len(counts))
    advice = (
        f"Programs read: {programs}; constructs in them: {present}, required {needed}. "
        f"Add programs; for a small workspace set min_corpus_coverage to {floor(100 * present / len(counts)) / 100:g}."
    )
    return dg.AssetCheckResult(
        passed=passed,
        metadata={
            "constructs_present": share_text(present, len(counts)),
            "measured": round(present / len(counts), 4),
            **required,
            **({} if passed else {"advice": advice}),
            "absent": ", ".join(missing) or "none",
            "shown": dg.MetadataValue.md(bar_chart("records by construct", counts)),
        },
    )


def _construct_counts(corpus: Artifact) -> dict[str, int]:
    counts: Counter[str] = Counter()
    with corpus.file(RECORDS).open(encoding="utf-8") as lines:
        for line in lines:
            counts.update(json.loads(line)["constructs"].keys())
    return {name: counts[name] for name in CONSTRUCTS}
