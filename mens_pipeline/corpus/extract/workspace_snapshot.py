"""Snapshot of a workspace, pinned by hash before it is read, with the verdicts of the front end."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.extract.extracted_corpus import params_of
from mens_pipeline.corpus.extract.source_report import RejectedFile, SourceReport, report_sources
from mens_pipeline.corpus.extract.source_roots import find_source_roots
from mens_pipeline.corpus.extract.sources import PAGE_SUFFIXES, files_below
from mens_pipeline.corpus.telemetry.table import TelemetryQuery
from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore

KIND: Final = "workspace_snapshot"
STAGE: Final = Stage(KIND, (__name__,))
REPORT: Final = "sources.json"

Contents = Callable[[], Iterable[tuple[str, bytes | None]]]
"""Relative path and bytes of each program; None for one that cannot be read."""


def build_workspace_snapshot(
    root: Path, contents: Contents, store: ArtifactStore, telemetry: TelemetryQuery | None = None
) -> tuple[Artifact, bool]:
    """Pin what programs, pages and telemetry hold now; an unchanged workspace is not parsed again.

    Returns:
        The snapshot, and whether it was reused. Its folder holds `sources.json`.

    Raises:
        SourceNotFoundError: `root` is no folder.
        RefusedError: The workspace or the telemetry changed while it was read.
        ConfigurationError: `examples.ssot.v1.yaml` does not hold together, or the store cannot be written.
    """
    params = params_of(root, telemetry)

    def write(folder: Path) -> dict[str, Any]:
        roots = find_source_roots(root)
        report = report_sources(contents(), lambda path: roots.is_golden(root / path))
        (folder / REPORT).write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
        num_pages = len(list(files_below(root, PAGE_SUFFIXES)))
        if params_of(root, telemetry) != params:
            raise RefusedError(f"{root}: the workspace or the telemetry changed while it was read. Run again.")
        return {"num_files": report.num_files, "num_bytes": report.num_bytes, "num_pages": num_pages}

    return STAGE.build(store, (), params, write)


def source_report_in(snapshot: Artifact) -> SourceReport:
    """Read what the front end says of the programs of a snapshot."""
    values = json.loads((snapshot.path / REPORT).read_text(encoding="utf-8"))
    return SourceReport(**{**values, "rejected": tuple(RejectedFile(**file) for file in values["rejected"])})
