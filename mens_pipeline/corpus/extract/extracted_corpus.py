"""The snapshot of a workspace, pinned by hash before it is read, and the corpus that is extracted from it."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from pydantic import BaseModel, Field, TypeAdapter

from mens_pipeline.corpus.extract.batches import ONE_PROCESS, Pool
from mens_pipeline.corpus.extract.licences import LICENCE_FILES, LicencePolicy, licence_files_above
from mens_pipeline.corpus.extract.sources import (
    PAGE_SUFFIXES,
    ROOTS_FILE,
    VOX_SUFFIXES,
    commit_of,
    files_below,
    find_source_roots,
    tree_fingerprint,
)
from mens_pipeline.corpus.extract.workspace import (
    FileOutcome,
    extract_workspace,
    extraction_report,
    outcome_of,
    with_commit,
)
from mens_pipeline.corpus.schema.account import Account, Drop, Unit
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


@dataclass
class PreviousExtraction:
    """The records of an earlier corpus, and the commit that they name.

    `accounts` maps a path to the account of the file, with `start` and `end`, where its records lie in bytes.
    """

    accounts: dict[str, dict[str, Any]]
    records: BinaryIO
    commit: str | None

    def outcome(self, file: SourceFile) -> FileOutcome | None:
        """Return what the file gave, if its content is the same now and nothing else decided it; None otherwise."""
        account = self.accounts.get(file.path)
        if account is None or account["blob"] != file.blob or not account["stands_alone"]:
            return None
        self.records.seek(account["start"])
        text = self.records.read(account["end"] - account["start"]).decode()
        lines = tuple(with_commit(line, self.commit, file.commit) for line in text.split("\n")[:-1])
        return outcome_of(account, lines)


RECORDS: Final = CorpusFile.RECORDS
REPORT: Final = CorpusFile.REPORT
TELEMETRY: Final = CorpusFile.TELEMETRY


class UnitCounts(BaseModel):
    """How many programs, pages, sections or blocks were seen and kept; the others by reason."""

    seen: int
    kept: int
    dropped: dict[str, int]


class WorkspaceState(BaseModel):
    """The commit of a workspace; none without a repository."""

    commit: str | None


class CorpusDetails(Details):
    """Counts and inputs in the manifest of a corpus."""

    inputs: WorkspaceState
    num_records: int
    units: dict[str, UnitCounts]
    telemetry: dict[str, Any] | None
    grammar: str
    redactions: dict[str, int] = Field(default_factory=dict)


@dataclass
class Reuse:
    """Whether the whole corpus was there already; else the files that were taken over, and those that were extracted.

    `differs`: a full extraction gave other bytes than the earlier one of the same inputs did.
    """

    is_whole: bool = False
    known: int = 0
    extracted: int = 0
    differs: bool = False


_READ: Final = (*VOX_SUFFIXES, *PAGE_SUFFIXES, ROOTS_FILE, *LICENCE_FILES)


class WorkspaceParams(Params):
    """Parameters of an extraction: hashes of contents, roots and telemetry, the commit, and where they lie."""

    sources: str
    roots: str
    commit: str | None
    telemetry: str | None
    root: Helper[Path]
    query: Helper[TelemetryQuery | None]

    @classmethod
    def of(cls, root: Path, query: TelemetryQuery | None = None, **others: Any) -> Self:
        """Look at a workspace and a telemetry table as they are now; `others` are fields of a subclass."""
        return cls(
            sources=tree_fingerprint(root, (*files_below(root, _READ), *licence_files_above(root))),
            roots=find_source_roots(root).fingerprint(),
            commit=commit_of(root),
            telemetry=None if query is None else telemetry_fingerprint(query),
            root=root,
            query=query,
            **others,
        )

    def refuse_change(self) -> None:
        """Refuse files that have changed since the snapshot was made."""
        now = WorkspaceParams.of(self.root, self.query).model_dump()
        if now != self.model_dump(include=set(WorkspaceParams.model_fields)):
            raise RefusedError(f"{self.root}: the workspace or the telemetry changed while it was read. Run again.")


class ExtractionParams(WorkspaceParams):
    """A workspace, and how it is extracted: `full` is every file, whatever the latest corpus of the store knows.

    A policy that denies nothing is in no key.
    """

    redaction: RedactionPolicy = RedactionPolicy.MASK
    licences: LicencePolicy = Field(default_factory=LicencePolicy, exclude_if=lambda policy: not policy.deny)
    store: Helper[ArtifactStore]
    reuse: Helper[Reuse]
    pool: Helper[Pool] = ONE_PROCESS
    full: Helper[bool] = False


def write_extracted_corpus(folder: Path, params: ExtractionParams) -> dict[str, Any]:
    """Extract a workspace; files that have not changed since the latest corpus are not read again.

    The folder gets `records.jsonl`, `telemetry.jsonl` (redacted pairs, none without a database), `files.jsonl` (what
    each file gave, and where its records lie) and `report.json`. None of it depends on the pool.

    Raises:
        RefusedError: The workspace or the telemetry changed while it was read.
    """
    known = None if params.full else _latest(params.store, STAGE.inputs(params))
    extra = _write(folder, params, known)
    telemetry_counts = _write_telemetry(folder / TELEMETRY, params.query)
    params.refuse_change()
    return {**extra, "telemetry": telemetry_counts, "grammar": grammar_fingerprint()}


STAGE: Final = Stage(Kind.EXTRACTED_CORPUS, (f"{__name__}:write_extracted_corpus",), write_extracted_corpus)


def build_extracted_corpus(  # noqa: PLR0913 - what, where to, and what is known
    root: Path,
    store: ArtifactStore,
    pool: Pool = ONE_PROCESS,
    telemetry: TelemetryQuery | None = None,
    *,
    full: bool = False,
    redaction: RedactionPolicy = RedactionPolicy.MASK,
    licences: LicencePolicy | None = None,
    pinned: Mapping[str, Any] | None = None,
) -> tuple[Artifact, Reuse]:
    """Extract a workspace into the store, and return the corpus with how much of it was known.

    `full` extracts every file, whatever is known; an earlier corpus of the same inputs is replaced. `pinned` is what
    `workspace_snapshot` found when it looked at the workspace; None to take it as it is.

    Raises:
        SourceNotFoundError: `root` is no folder.
        RefusedError: The workspace or the telemetry is not what was pinned, or changed while it was read.
    """
    reuse = Reuse()
    how = {"pool": pool, "full": full, "redaction": redaction, "licences": licences or LicencePolicy()}
    params = ExtractionParams.of(root, telemetry, store=store, reuse=reuse, **how)
    looked_at = params.model_dump(include=set(WorkspaceParams.model_fields))
    changed = [name for name, value in looked_at.items() if pinned is not None and pinned[name] != value]
    if changed:
        advice = "Materialise workspace_snapshot with it: what is read is what was checked."
        raise RefusedError(f"{root}: {', '.join(changed)} changed since workspace_snapshot looked. {advice}")
    before = STAGE.find(store, params)
    corpus, reuse.is_whole = STAGE.build(store, params, force=full)
    reuse.differs = before is not None and before.manifest != corpus.manifest
    return corpus, reuse


def _write(folder: Path, params: ExtractionParams, latest: Artifact | None) -> dict[str, Any]:
    reuse, commit = params.reuse, params.commit
    accounts = {unit: Account[DropReason]() for unit in Unit}
    drops: list[Drop] = []
    redacted: Counter[SensitiveKind] = Counter()
    num_records = position = 0
    with ExitStack() as stack:
        previous = None
        if latest is not None:
            with latest.file(FILES).open(encoding="utf-8") as lines:
                known = {account["path"]: account for account in map(json.loads, lines)}
            earlier = stack.enter_context(latest.file(RECORDS).open("rb"))
            previous = PreviousExtraction(known, earlier, latest.inputs["commit"])
        records = stack.enter_context((folder / RECORDS).open("w", encoding="utf-8", newline="\n"))
        index = stack.enter_context((folder / FILES).open("w", encoding="utf-8", newline="\n"))

        def look_up(file: SourceFile) -> FileOutcome | None:
            outcome = previous.outcome(file) if previous is not None else None
            reuse.known += outcome is not None
            reuse.extracted += outcome is None
            return outcome

        outcomes = extract_workspace(
            params.root, commit, look_up, params.pool, redaction=params.redaction, policy=params.licences
        )
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
    details = {**report, "drops": [asdict(drop) for drop in drops]}
    (folder / REPORT).write_text(json.dumps(details, indent=2) + "\n", encoding="utf-8")
    return report


def _latest(store: ArtifactStore, inputs: dict[str, Any]) -> Artifact | None:
    """Return the latest corpus, if the same rules made it and its files are unchanged."""
    previous = store.latest(Kind.EXTRACTED_CORPUS)
    if previous is None or previous.is_damaged():
        return None
    is_same = all(previous.inputs.get(rule) == inputs.get(rule) for rule in ("code", "roots", "redaction", "licences"))
    return previous if is_same else None


def _write_telemetry(path: Path, query: TelemetryQuery | None) -> dict[str, Any] | None:
    """Write the pairs of a telemetry table, and return the counts; without a database none, and None."""
    if query is None:
        path.touch()
        return None
    account = TelemetryAccount()
    write_jsonl(path, telemetry_pairs(read_telemetry(query), account, query.table))
    account.check()
    return {"table": query.table, **account.as_json()}


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


Contents = Callable[[], Iterable[tuple[str, bytes | None]]]
"""Relative path and bytes of each program; None for one that cannot be read."""


class SnapshotParams(WorkspaceParams):
    """A workspace as it is now, and how its programs are read."""

    contents: Helper[Contents]


def write_workspace_snapshot(folder: Path, params: SnapshotParams) -> dict[str, Any]:
    """Pin what programs, pages and telemetry hold now: `sources.json` gets what the front end says of the programs.

    Raises:
        RefusedError: The workspace or the telemetry changed while it was read.
    """
    root = params.root
    roots = find_source_roots(root)
    report = report_sources(params.contents(), lambda path: roots.is_golden(root / path))
    (folder / SnapshotFile.SOURCES).write_bytes(_REPORTS.dump_json(report, indent=2) + b"\n")
    num_pages = len(list(files_below(root, PAGE_SUFFIXES)))
    params.refuse_change()
    return {"num_files": report.num_files, "num_bytes": report.num_bytes, "num_pages": num_pages}


SNAPSHOT_STAGE: Final = Stage(
    Kind.WORKSPACE_SNAPSHOT, (f"{__name__}:write_workspace_snapshot",), write_workspace_snapshot
)


def source_report_in(snapshot: Artifact) -> SourceReport:
    """Read what the front end says of the programs of a snapshot."""
    return _REPORTS.validate_json(snapshot.file(SnapshotFile.SOURCES).read_bytes())
