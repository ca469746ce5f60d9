"""The snapshot of a workspace, pinned by hash, and the corpus that is extracted from it."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from pydantic import BaseModel, Field, TypeAdapter

from mens_pipeline.corpus.extract.batches import ONE_PROCESS, Pool
from mens_pipeline.corpus.extract.forgotten import SourcePolicy
from mens_pipeline.corpus.extract.licences import LICENCE_FILES, files_above
from mens_pipeline.corpus.extract.sources import (
    PAGE_SUFFIXES,
    ROOTS_FILE,
    VOX_SUFFIXES,
    CheckoutOrigin,
    OwnSources,
    files_below,
    find_source_roots,
    tree_fingerprint,
)
from mens_pipeline.corpus.extract.workspace import (
    FileOutcome,
    build_outcome,
    extract_workspace,
    extraction_report,
    with_commit,
)
from mens_pipeline.corpus.schema.account import Account, Drop, Unit
from mens_pipeline.corpus.schema.file_text import is_other_format
from mens_pipeline.corpus.schema.reasons import DropReason
from mens_pipeline.corpus.schema.records import FILES, SourceFile
from mens_pipeline.corpus.telemetry.redaction import RedactionPolicy, SensitiveKind
from mens_pipeline.corpus.telemetry.table import (
    TelemetryAccount,
    TelemetryQuery,
    read_telemetry,
    telemetry_fingerprint,
    telemetry_pairs,
)
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import CONSTRUCTS, analyze_bytes, construct_of, grammar_fingerprint, mode_of
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import CorpusFile, Kind, SnapshotFile
from mens_pipeline.storage.stage import Helper, Params, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, Details

RECORDS: Final = CorpusFile.RECORDS
REPORT: Final = CorpusFile.REPORT
TELEMETRY: Final = CorpusFile.TELEMETRY


@dataclass(frozen=True, slots=True)
class PreviousExtraction:
    """An earlier corpus, made by the same rules.

    `accounts` maps a path to the account of the file; its `start` and `end` are the byte range of its records.
    """

    accounts: dict[str, dict[str, Any]]
    records: BinaryIO

    @classmethod
    @contextmanager
    def open(cls, corpus: Artifact) -> Iterator[Self]:
        """Read the accounts of a corpus, and keep its records open."""
        with corpus.file(RECORDS).open("rb") as records:
            yield cls({account["path"]: account for account in _read_accounts(corpus)}, records)

    def knows(self, path: str, blob: str) -> bool:
        """Return whether a file had this content, and its outcome depended on nothing else."""
        account = self.accounts.get(path)
        return account is not None and account["blob"] == blob and account["stands_alone"]

    def outcome(self, file: SourceFile) -> FileOutcome | None:
        """Return the outcome of a known file; None for any other."""
        if not self.knows(file.path, file.blob):
            return None
        account = self.accounts[file.path]
        self.records.seek(account["start"])
        text = self.records.read(account["end"] - account["start"]).decode()
        lines = tuple(with_commit(line, file.commit) for line in text.split("\n")[:-1])
        return build_outcome(account, lines)


def _read_accounts(corpus: Artifact) -> Iterator[dict[str, Any]]:
    with corpus.file(FILES).open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


class UnitCounts(BaseModel):
    """Counts of programs, pages, sections or blocks: seen, kept, and dropped by reason."""

    seen: int
    kept: int
    dropped: dict[str, int]


class WorkspaceState(BaseModel):
    """The checkouts of a workspace, and its commit, None without a repository."""

    commit: str | None
    checkouts: tuple[CheckoutOrigin, ...] = ()


class CorpusDetails(Details):
    """Counts and inputs in the manifest of a corpus."""

    inputs: WorkspaceState
    num_records: int
    units: dict[str, UnitCounts]
    telemetry: dict[str, Any] | None
    grammar: str
    redactions: dict[str, int]


@dataclass(frozen=True, slots=True)
class Reuse:
    """Counts of reused and newly extracted files of a corpus.

    `is_whole` says that the corpus existed already; otherwise `known` and `extracted` count files. `differs` says that
    a full extraction gave different bytes from the earlier one of the same inputs.
    """

    is_whole: bool = False
    known: int = 0
    extracted: int = 0
    differs: bool = False


READ: Final = (*VOX_SUFFIXES, *PAGE_SUFFIXES, ROOTS_FILE, *LICENCE_FILES, ".gitattributes")
"""Endings of the names of the files that determine the corpus of a workspace."""


class WorkspaceParams(Params):
    """A pinned workspace: hashes of contents, roots and telemetry, the commits, and their `root` and `query`.

    `include` names files to train on although they are not own. Empty fields are left out of the key.
    """

    sources: str
    roots: str
    commit: str | None
    telemetry: str | None
    checkouts: tuple[CheckoutOrigin, ...] = Field(default=(), exclude_if=lambda checkouts: not checkouts)
    include: tuple[str, ...] = Field(default=(), exclude_if=lambda include: not include)
    root: Helper[Path]
    query: Helper[TelemetryQuery | None]

    @classmethod
    def pin(cls, root: Path, query: TelemetryQuery | None = None, include: tuple[str, ...] = (), **others: Any) -> Self:
        """Hash a workspace and a telemetry table; `others` are fields of a subclass."""
        sources = OwnSources(root, include)
        files = (path for path, left_out in sources.files(root, READ) if left_out is None)
        fingerprint = tree_fingerprint(root, (*files, *files_above(root)))
        checkouts = sources.origins()
        return cls(
            sources=fingerprint,
            roots=find_source_roots(root).fingerprint(),
            commit=next((origin.commit for origin in checkouts if origin.folder == "."), None),
            checkouts=checkouts,
            include=include,
            telemetry=None if query is None else telemetry_fingerprint(query),
            root=root,
            query=query,
            **others,
        )

    def refuse_change(self) -> None:
        """Raise `RefusedError` if the workspace or the telemetry has changed since it was pinned."""
        now = WorkspaceParams.pin(self.root, self.query, self.include)
        changed = [name for name in WorkspaceParams.model_fields if getattr(now, name) != getattr(self, name)]
        if changed:
            advice = "Run again from workspace_snapshot on, so that the corpus matches the checked files."
            raise RefusedError(f"{self.root}: {', '.join(changed)} changed since the workspace was pinned. {advice}")


class ExtractionParams(WorkspaceParams):
    """A workspace, and how to extract it; `previous` only saves work, without changing the result."""

    redaction: RedactionPolicy = RedactionPolicy.MASK
    licences: SourcePolicy = Field(default_factory=SourcePolicy, exclude_if=lambda policy: policy == SourcePolicy())
    previous: Helper[PreviousExtraction | None] = None
    pool: Helper[Pool] = ONE_PROCESS


def write_extracted_corpus(folder: Path, params: ExtractionParams) -> dict[str, Any]:
    """Extract a workspace, without extracting unchanged files of the previous corpus again.

    Writes `records.jsonl`, `telemetry.jsonl` (redacted pairs, empty without a database), `files.jsonl` (the account of
    each file, and the byte range of its records) and `report.json`. They do not depend on the pool.

    Raises `RefusedError` if the workspace or the telemetry has changed since it was pinned.
    """
    extra = _write(folder, params)
    telemetry_counts = _write_telemetry(folder / TELEMETRY, params.query)
    params.refuse_change()
    return {**extra, "telemetry": telemetry_counts, "grammar": grammar_fingerprint()}


STAGE: Final = Stage(Kind.EXTRACTED_CORPUS, (f"{__name__}:write_extracted_corpus",), write_extracted_corpus)


def build_extracted_corpus(  # noqa: PLR0913 - inputs, destination and options
    root: Path,
    store: ArtifactStore,
    pool: Pool = ONE_PROCESS,
    telemetry: TelemetryQuery | None = None,
    *,
    full: bool = False,
    redaction: RedactionPolicy = RedactionPolicy.MASK,
    licences: SourcePolicy | None = None,
    include: tuple[str, ...] = (),
    pinned: Mapping[str, Any] | None = None,
) -> tuple[Artifact, Reuse]:
    """Extract a workspace into the store; return the corpus, and the counts of its reused files.

    `full` extracts every file, and replaces an earlier corpus of the same inputs. `pinned` holds the inputs of
    `workspace_snapshot`; None pins the workspace now.

    Raises:
        SourceNotFoundError: `root` is not a folder.
        RefusedError: The workspace or the telemetry has changed since it was pinned.
    """
    how = {"pool": pool, "redaction": redaction, "licences": licences or SourcePolicy()}
    if pinned is None:
        params = ExtractionParams.pin(root, telemetry, include, **how)
    else:
        pins = {name: pinned[name] for name in WorkspaceParams.model_fields if name in pinned}
        params = ExtractionParams(**pins, root=root, query=telemetry, **how)
    before = STAGE.find(store, params)
    if before is not None and not full:
        params.refuse_change()
        return STAGE.build(store, params)[0], Reuse(is_whole=True)
    latest = None if full else _find_latest(store, STAGE.inputs(params))
    with PreviousExtraction.open(latest) if latest is not None else nullcontext() as previous:
        corpus, _ = STAGE.build(store, params.model_copy(update={"previous": previous}), force=full)
    blobs = [(account["path"], account["blob"]) for account in _read_accounts(corpus) if account["blob"] is not None]
    known = sum(previous.knows(*file) for file in blobs) if previous is not None else 0
    differs = before is not None and before.manifest != corpus.manifest
    return corpus, Reuse(known=known, extracted=len(blobs) - known, differs=differs)


def _write(folder: Path, params: ExtractionParams) -> dict[str, Any]:
    accounts = {unit: Account[DropReason]() for unit in Unit}
    drops: list[Drop] = []
    redacted: Counter[SensitiveKind] = Counter()
    num_records = position = 0
    outcomes = extract_workspace(
        params.root,
        params.commit,
        params.previous.outcome if params.previous is not None else lambda _file: None,
        params.pool,
        OwnSources(params.root.resolve(), params.include),
        redaction=params.redaction,
        policy=params.licences,
    )
    with (
        (folder / RECORDS).open("w", encoding="utf-8", newline="\n") as records,
        (folder / FILES).open("w", encoding="utf-8", newline="\n") as index,
    ):
        for outcome in outcomes:
            text = "".join(f"{line}\n" for line in outcome.lines)
            start, position = position, position + len(text.encode())
            records.write(text)
            index.write(json.dumps({**outcome.account(), "start": start, "end": position}) + "\n")
            outcome.count(accounts)
            drops.extend(outcome.drops)
            redacted.update(outcome.redacted)
            num_records += len(outcome.lines)
    report = extraction_report(accounts, num_records, redacted)
    details = {
        **report,
        "checkouts": [origin.model_dump() for origin in params.checkouts],
        "drops": [asdict(drop) for drop in drops],
    }
    (folder / REPORT).write_text(json.dumps(details, indent=2) + "\n", encoding="utf-8")
    return report


def _find_latest(store: ArtifactStore, inputs: dict[str, Any]) -> Artifact | None:
    previous = store.latest(Kind.EXTRACTED_CORPUS)
    if previous is None or previous.is_damaged():
        return None
    is_same = all(
        previous.inputs.get(rule) == inputs.get(rule) for rule in ("code", "roots", "redaction", "licences", "include")
    )
    return previous if is_same else None


def _write_telemetry(path: Path, query: TelemetryQuery | None) -> dict[str, Any] | None:
    if query is None:
        path.touch()
        return None
    account = TelemetryAccount()
    write_jsonl(path, telemetry_pairs(read_telemetry(query), account, query.table))
    account.check()
    return {"table": query.table, **account.as_json()}


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A rejected file and its first error, with a line number from 1; only golden files affect the parse rate."""

    path: str
    line: int
    code: str
    message: str
    is_golden: bool = True


@dataclass(frozen=True, slots=True)
class WorkspaceReport:
    """The verdicts on the programs of a workspace.

    `num_other` counts files in other formats with a suffix of programs: voxel models, sound. `constructs` counts every
    construct in accepted programs, including zeros.
    """

    num_files: int
    num_other: int
    num_golden: int
    num_bytes: int
    rejected: tuple[RejectedFile, ...]
    constructs: dict[str, int]

    @property
    def num_accepted(self) -> int:
        """Number of golden files that the front end accepts."""
        return self.num_golden - sum(file.is_golden for file in self.rejected)

    @property
    def parse_rate(self) -> float | None:
        """Share of golden files that are accepted; None without golden files."""
        return self.num_accepted / self.num_golden if self.num_golden else None


_REPORTS: Final = TypeAdapter(WorkspaceReport)


class SnapshotDetails(Details):
    """Counts in the manifest of a snapshot."""

    num_pages: int


def report_sources(contents: Iterable[tuple[str, bytes | None]], is_golden: Callable[[str], bool]) -> WorkspaceReport:
    """Check every file of a workspace, given as relative path and bytes; None means unreadable."""
    num_files = num_other = num_golden = num_bytes = 0
    rejected: list[RejectedFile] = []
    counts: Counter[str] = Counter()
    for path, data in contents:
        if data is not None and is_other_format(data):
            num_other += 1
            continue
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
    return WorkspaceReport(num_files, num_other, num_golden, num_bytes, tuple(rejected), counted)


Contents = Callable[[], Iterable[tuple[str, bytes | None]]]
"""Relative path and bytes of each program; the bytes are None if it cannot be read."""


class SnapshotParams(WorkspaceParams):
    """A pinned workspace, and a function that reads its programs."""

    contents: Helper[Contents]


def write_workspace_snapshot(folder: Path, params: SnapshotParams) -> dict[str, Any]:
    """Check the programs of a pinned workspace; write the verdicts of the front end to `sources.json`.

    Raises `RefusedError` if the workspace or the telemetry has changed since it was pinned.
    """
    root = params.root
    roots = find_source_roots(root)
    report = report_sources(params.contents(), lambda path: roots.is_golden(root / path))
    (folder / SnapshotFile.SOURCES).write_bytes(_REPORTS.dump_json(report, indent=2) + b"\n")
    num_pages = len(list(files_below(root, PAGE_SUFFIXES, params.include)))
    params.refuse_change()
    return {"num_files": report.num_files, "num_bytes": report.num_bytes, "num_pages": num_pages}


SNAPSHOT_STAGE: Final = Stage(
    Kind.WORKSPACE_SNAPSHOT, (f"{__name__}:write_workspace_snapshot",), write_workspace_snapshot
)


def source_report_in(snapshot: Artifact) -> WorkspaceReport:
    """Read the verdicts of the front end on the programs of a snapshot."""
    return _REPORTS.validate_json(snapshot.file(SnapshotFile.SOURCES).read_bytes())
