"""Snapshot of a workspace, pinned by hash before it is read, with the verdicts of the front end."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from mens_pipeline.corpus.extract.extracted_corpus import params_of
from mens_pipeline.corpus.extract.source_roots import find_source_roots
from mens_pipeline.corpus.extract.sources import PAGE_SUFFIXES, files_below
from mens_pipeline.corpus.telemetry.table import TelemetryQuery
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import CONSTRUCTS, analyze_bytes, construct_of, mode_of
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, Details


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A file that is no Vox, and its first error, at a line from 1; only golden files count for the parse rate."""

    path: str
    line: int
    code: str
    message: str
    is_golden: bool = True


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The verdicts on the files of a workspace; `constructs` counts all constructs over accepted files, also with 0."""

    num_files: int
    num_golden: int
    num_bytes: int
    rejected: tuple[RejectedFile, ...]
    constructs: dict[str, int]

    @property
    def num_accepted(self) -> int:
        """Golden files that the front end accepts."""
        return self.num_golden - sum(file.is_golden for file in self.rejected)

    @property
    def parse_rate(self) -> float | None:
        """Accepted golden files over all of them; None when there are none."""
        return self.num_accepted / self.num_golden if self.num_golden else None

    @property
    def missing_constructs(self) -> tuple[str, ...]:
        """Constructs of which the workspace has no example."""
        return tuple(name for name, count in self.constructs.items() if count == 0)


_REPORTS: Final = TypeAdapter(SourceReport)


class SnapshotDetails(Details):
    """Counts in the manifest of a snapshot."""

    num_pages: int


def report_sources(contents: Iterable[tuple[str, bytes | None]], is_golden: Callable[[str], bool]) -> SourceReport:
    """Check every file of a workspace, given as relative path and bytes; None for a file that cannot be read."""
    num_files = num_golden = num_bytes = 0
    rejected: list[RejectedFile] = []
    counts: Counter[str] = Counter()
    for path, data in contents:
        golden = is_golden(path)
        num_files += 1
        num_golden += golden
        if data is None:
            rejected.append(RejectedFile(path, 1, "unreadable", "the file cannot be read", golden))
            continue
        num_bytes += len(data)
        analysis = analyze_bytes(data, mode_of(Path(path).name))
        if analysis.module is None:
            first = analysis.errors[0]
            rejected.append(RejectedFile(path, first.start.line, str(first.code), first.message, golden))
        else:
            counts.update(construct_of(declaration).name for declaration in analysis.module.declarations)
    counted = {name: counts[name] for name in CONSTRUCTS}
    return SourceReport(num_files, num_golden, num_bytes, tuple(rejected), counted)


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
    """
    params = params_of(root, telemetry)

    def write(folder: Path) -> dict[str, Any]:
        roots = find_source_roots(root)
        report = report_sources(contents(), lambda path: roots.is_golden(root / path))
        (folder / REPORT).write_bytes(_REPORTS.dump_json(report, indent=2) + b"\n")
        num_pages = len(list(files_below(root, PAGE_SUFFIXES)))
        if params_of(root, telemetry) != params:
            raise RefusedError(f"{root}: the workspace or the telemetry changed while it was read. Run again.")
        return {"num_files": report.num_files, "num_bytes": report.num_bytes, "num_pages": num_pages}

    return STAGE.build(store, (), params, write)


def source_report_in(snapshot: Artifact) -> SourceReport:
    """Read what the front end says of the programs of a snapshot."""
    return _REPORTS.validate_json((snapshot.path / REPORT).read_bytes())
