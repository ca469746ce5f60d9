"""Extract the records of a workspace, and account for everything that was seen."""

import hashlib
import json
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from mens_pipeline.corpus.extract.batches import ONE_PROCESS, Pool, in_batches
from mens_pipeline.corpus.extract.extractors import PageExtraction, extract_docs, extract_vox
from mens_pipeline.corpus.extract.forgotten import FORGOTTEN, SourcePolicy
from mens_pipeline.corpus.extract.licences import Licences
from mens_pipeline.corpus.extract.page import has_include
from mens_pipeline.corpus.extract.sources import (
    PAGE_SUFFIXES,
    VOX_SUFFIXES,
    OwnSources,
    Reason,
    SourceRoots,
    find_newest_commit,
    find_source_roots,
    shown_name,
)
from mens_pipeline.corpus.schema.account import Account, Drop, Unit, most_frequent
from mens_pipeline.corpus.schema.file_text import is_other_format, is_wide
from mens_pipeline.corpus.schema.reasons import DropReason, LeaveReason
from mens_pipeline.corpus.schema.records import ExtractedRecord, SourceFile, SourceKind, read_record_lines
from mens_pipeline.corpus.telemetry.redaction import RedactionPolicy, SensitiveKind, redact, redact_row
from mens_pipeline.errors import require_folder
from mens_pipeline.storage.files import is_out_of_place, read_regular


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """The result for one file of a workspace: its records as JSON lines, and its drops.

    `blob` is the hexadecimal SHA-256 of its content, None if it was not read. The file itself is a unit, kept or
    dropped. `stands_alone` is false for a page that includes other files, which also affect its result. `redacted`
    counts the findings in its records, each once. `licence` is an SPDX expression or `unknown`, and `remote` the URL of
    its checkout; None if unread.
    """

    path: str
    blob: str | None
    lines: tuple[str, ...]
    kept: dict[Unit, int]
    drops: tuple[Drop, ...]
    stands_alone: bool = True
    redacted: dict[SensitiveKind, int] = field(default_factory=dict)
    licence: str | None = None
    remote: str | None = None

    def count(self, accounts: dict[Unit, Account[DropReason]]) -> None:
        """Add its kept and dropped units to the accounts."""
        for unit, number in self.kept.items():
            accounts[unit].seen += number
            accounts[unit].kept += number
        for drop in self.drops:
            accounts[drop.unit].seen += 1
            accounts[drop.unit].dropped[drop.reason] += 1

    def account(self) -> dict[str, Any]:
        """Return everything but the lines, in JSON types."""
        account: dict[str, Any] = _OUTCOMES.dump_python(
            self, mode="json", exclude={"lines": True, "drops": {"__all__": {"path"}}}
        )
        return account


_OUTCOMES: Final = TypeAdapter(FileOutcome)


def extraction_report(
    accounts: dict[Unit, Account[DropReason]], num_records: int, redacted: Mapping[SensitiveKind, int]
) -> dict[str, Any]:
    """Return the counts of an extraction in JSON types."""
    units = {
        str(unit): {"seen": account.seen, "kept": account.kept, "dropped": most_frequent(account.dropped)}
        for unit, account in accounts.items()
    }
    return {"num_records": num_records, "units": units, "redactions": most_frequent(redacted)}


def build_outcome(account: dict[str, Any], lines: tuple[str, ...]) -> FileOutcome:
    """Build an outcome from its account and its lines."""
    drops = [{**drop, "path": account["path"]} for drop in account["drops"]]
    return _OUTCOMES.validate_python({**account, "lines": lines, "drops": drops})


_COMMIT: Final = re.compile(r'"commit":(?:null|"[^"]*")')


def with_commit(line: str, commit: str | None) -> str:
    """Replace the commit in the source of a record's line."""
    # Inside a JSON string a quote is escaped, so the first match is the key of the source.
    return _COMMIT.sub(lambda _: f'"commit":{json.dumps(commit)}', line, count=1)


MAX_FILE_BYTES: Final = 1_048_576
"""Largest size of a program or page; larger ones are not examples."""

_UNITS: Final = ((Unit.VOX_FILE, VOX_SUFFIXES), (Unit.PAGE, PAGE_SUFFIXES))
_LEAVES: Final = {DropReason.FORGOTTEN: LeaveReason.FORGOTTEN, DropReason.LICENCE: LeaveReason.LICENCE}
_UNIT_OF: Final = {SourceKind.DOC_BLOCK: Unit.BLOCK, SourceKind.DOC_SECTION: Unit.SECTION}


def extract_workspace(  # noqa: PLR0913, PLR0917 - inputs, earlier results and options
    root: Path,
    commit: str | None = None,
    known: Callable[[SourceFile], FileOutcome | None] = lambda _file: None,
    pool: Pool = ONE_PROCESS,
    sources: OwnSources | None = None,
    redaction: RedactionPolicy = RedactionPolicy.MASK,
    policy: SourcePolicy | None = None,
) -> Iterator[FileOutcome]:
    """Yield the outcomes of all programs, then all pages below a folder, each by path; drop files that are not own.

    `known` returns the earlier outcome of a file if it still holds, else None; outcomes do not depend on the pool.
    Paths are relative to the root of `sources`, inside which includes are resolved; None means `root` itself. `commit`
    is the commit of its checkout. `redaction` decides whether rows with secrets or personal data are masked or dropped;
    `policy` keeps files out.

    Raises `SourceNotFoundError` if `root` is not a folder.
    """
    require_folder(root, "Name a Vox workspace.")
    root = root.resolve()
    sources = sources or OwnSources(root)
    licences, policy = Licences(sources.root), policy or SourcePolicy()
    reader = _Reader(sources, find_source_roots(root), commit, redaction, policy, licences)

    def items() -> Iterator[tuple[tuple[Unit, SourceFile] | None, FileOutcome | None, int]]:
        for unit, suffixes in _UNITS:
            for path, left_out in sources.files(root, suffixes, everything=True):
                file = reader.read(path, unit, left_out)
                if isinstance(file, Drop):
                    yield None, FileOutcome(file.path, None, (), {}, (file,)), 0
                    continue
                outcome = known(file)
                if outcome is not None:
                    outcome = replace(outcome, licence=file.licence, remote=file.remote)
                yield (unit, file) if outcome is None else None, outcome, len(file.data)

    return in_batches(items(), reader.extract_batch, pool)


_MOST_SECONDS: Final = 60
"""Processor time for one file, so that an unforeseen one cannot hold up the others for hours."""


class _TooSlowError(Exception):
    pass


@contextmanager
def _limit_time(seconds: float) -> Iterator[None]:
    """Raise `_TooSlowError` in the body after `seconds` of processor time; only works in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass(frozen=True, slots=True)
class _Reader:
    sources: OwnSources
    roots: SourceRoots
    commit: str | None
    redaction: RedactionPolicy
    policy: SourcePolicy
    licences: Licences

    def read(self, path: Path, unit: Unit, left_out: Reason | None) -> SourceFile | Drop:
        name = shown_name(path, self.sources.root)
        if is_out_of_place(path):
            return Drop(unit, name, 1, DropReason.LINK, "a symbolic link, a pipe or a device")
        if name != path.relative_to(self.sources.root).as_posix():
            return Drop(unit, name, 1, DropReason.NOT_TEXT, "a name that is not UTF-8")
        if left_out is not None:
            return Drop(unit, name, 1, *left_out)
        try:
            if self.roots.is_negative(path):
                return Drop(unit, name, 1, DropReason.NEGATIVE_ROOT, "below a negative root")
            size = path.stat().st_size
            if size > MAX_FILE_BYTES:
                return Drop(unit, name, 1, DropReason.TOO_LARGE, f"{size} bytes, more than {MAX_FILE_BYTES}")
            is_golden = self.roots.is_golden(path)
            data = read_regular(path, MAX_FILE_BYTES, below=self.sources.root)
        except (OSError, RuntimeError) as error:  # a folder may just have become a link, or a loop of links
            return Drop(unit, name, 1, DropReason.UNREADABLE, getattr(error, "strerror", None) or type(error).__name__)
        if is_other_format(data):
            return Drop(Unit.OTHER_FORMAT, name, 1, DropReason.NOT_TEXT, "not text")
        licence = self.licences.find_licence(path, data)
        refusal = _find_refusal(self.policy, name, data, licence) or self.sources.find_mark(path, data)
        if refusal is not None:
            return Drop(unit, name, 1, *refusal)
        commit, remote, origin = self.commit, None, self.sources.origin_of(path)
        if origin is not None:
            commit, remote = commit if origin.folder == "." else origin.commit, origin.remote
        return SourceFile(name, data, commit, is_golden, licence, remote)

    def refuse_include(self, path: Path, data: bytes) -> tuple[DropReason, str] | None:
        if not path.name.endswith((*VOX_SUFFIXES, *PAGE_SUFFIXES)):  # no fingerprint would tell that it has changed
            return DropReason.BAD_INCLUDE, f"{path.name} is neither a program nor a page"
        if self.roots.is_negative(path):
            return DropReason.NEGATIVE_ROOT, f"{path.name} is below a negative root"
        reason = self.sources.find_reason(path) or self.sources.find_mark(path, data)
        name, licence = os.path.relpath(path, self.sources.root), self.licences.find_licence(path, data)
        reason = reason or _find_refusal(self.policy, name, data, licence)
        return reason and (reason[0], f"{path.name}: {reason[1]}")

    def extract_batch(self, files: list[tuple[Unit, SourceFile]]) -> list[FileOutcome]:
        return [
            replace(self._extract_in_time(unit, file), licence=file.licence, remote=file.remote) for unit, file in files
        ]

    def _extract_in_time(self, unit: Unit, file: SourceFile) -> FileOutcome:
        try:
            with _limit_time(_MOST_SECONDS):
                return self._extract(unit, file)
        except _TooSlowError:
            drop = Drop(unit, file.path, 1, DropReason.TOO_SLOW, f"more than {_MOST_SECONDS} s of processor time")
            return FileOutcome(file.path, file.blob, (), {}, (drop,), stands_alone=False)

    def _extract(self, unit: Unit, file: SourceFile) -> FileOutcome:
        is_page = unit is Unit.PAGE
        stands_alone = not (is_page and has_include(file.data))
        found = extract_docs(file, self.sources.root, self.refuse_include) if is_page else extract_vox(file)
        if isinstance(found, Drop):
            return FileOutcome(file.path, file.blob, (), {}, (found,), stands_alone)
        records, drops = (found.records, found.drops) if isinstance(found, PageExtraction) else (found, ())
        redacted: Counter[SensitiveKind] = Counter()
        # Search the whole file before its records, which repeat each other. A value in a page's header counts as a
        # comment only after its key, so such pages are redacted record by record.
        is_looked_into = not stands_alone or any(record.metadata for record in records)
        if self.redaction is not RedactionPolicy.OFF and (is_looked_into or redact(file.text).counts):
            read, (records, lost, redacted) = records, redact_records(records, self.redaction)
            if stands_alone and redacted:
                # All records repeat the header, and the record of a declaration repeats a part of its file's record.
                whole = {"text": file.text, **dict.fromkeys(("prompt", "context", "name"))}
                own = redact_row(read[0].model_copy(update=whole), self.redaction).counts
                redacted = Counter({kind: min(count, own.get(kind, count)) for kind, count in redacted.items()})
            drops += lost
            if lost and not is_page:
                return FileOutcome(file.path, file.blob, (), {}, lost[:1], stands_alone, dict(redacted))
        kept = Counter({unit: 1})
        kept.update(_UNIT_OF[record.source.kind] for record in records if record.source.kind in _UNIT_OF)
        lines = tuple(record.model_dump_json() for record in records)
        return FileOutcome(file.path, file.blob, lines, dict(kept), drops, stands_alone, dict(redacted))


def _find_refusal(policy: SourcePolicy, name: str, data: bytes, licence: str) -> tuple[DropReason, str] | None:
    if policy.forgets(name, hashlib.sha256(data).hexdigest()):
        return DropReason.FORGOTTEN, f"config/{FORGOTTEN} lists it"
    if policy.denies(licence):
        return DropReason.LICENCE, f"licence {licence}"
    return (DropReason.NOT_UTF8, "UTF-16 or UTF-32; save the file as UTF-8") if is_wide(data) else None


def redact_records(
    records: Iterable[ExtractedRecord], policy: RedactionPolicy
) -> tuple[tuple[ExtractedRecord, ...], tuple[Drop, ...], Counter[SensitiveKind]]:
    """Mask or drop records; return the remaining records, a drop for each other one, and counts of all findings."""
    left: list[ExtractedRecord] = []
    drops: list[Drop] = []
    counts: Counter[SensitiveKind] = Counter()
    for record in records:
        redacted, source = redact_row(record, policy), record.source
        counts.update(redacted.counts)
        if redacted.row is not None:
            left.append(redacted.row)
        else:
            unit = _UNIT_OF.get(source.kind, Unit.VOX_FILE)
            drops.append(Drop(unit, source.path, source.lines[0], DropReason.SENSITIVE, redacted.detail))
    return tuple(left), tuple(drops), counts


def page_records(
    folders: Iterable[Path],
    known_blobs: Iterable[str],
    redaction: RedactionPolicy = RedactionPolicy.MASK,
    policy: SourcePolicy | None = None,
    include: tuple[str, ...] = (),
) -> list[ExtractedRecord]:
    """Extract the records of all eligible pages below folders, each page once; skip pages with a hash in `known_blobs`.

    Includes are resolved inside the workspace of a folder: the one with its `examples.ssot.v1.yaml`, or else the folder
    itself.

    Raises `SourceNotFoundError` if one of them is not a folder.
    """
    seen = set(known_blobs)
    records: list[ExtractedRecord] = []
    for folder in folders:
        require_folder(folder, "Name a folder of pages.")
        roots = find_source_roots(folder)
        workspace = roots.workspace or folder.resolve()
        sources, commit = OwnSources(workspace, include), find_newest_commit(workspace)
        reader = _Reader(sources, roots, commit, redaction, policy or SourcePolicy(), Licences(workspace))
        for path, left_out in sources.files(folder.resolve(), PAGE_SUFFIXES):
            page = reader.read(path, Unit.PAGE, left_out)
            if isinstance(page, Drop) or page.blob in seen:
                continue
            seen.add(page.blob)
            found = extract_docs(page, workspace, reader.refuse_include)
            if not isinstance(found, Drop):
                records.extend(redact_records(found.records, redaction)[0])
    return records


@dataclass(kw_only=True)
class CarriedRecords(Account[LeaveReason]):
    """Earlier records of other folders: `lines` holds the kept ones without line ends; the others have a reason."""

    lines: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the counts in JSON types, most frequent first."""
        return {"stayed": self.kept, "left": {str(reason): count for reason, count in self.dropped.most_common()}}


def carried_records(
    records: Path, folder: Path, sources: OwnSources, roots: SourceRoots, policy: SourcePolicy | None = None
) -> CarriedRecords:
    """Read earlier records of other folders; drop records of files that are gone, changed, refused or not own.

    `records` may be missing. Records of `folder` are extracted again, so they are neither kept nor counted.

    Raises `RefusedError` if a line is not a record, since it would be lost.
    """
    folder, workspace = folder.resolve(), sources.root
    licences = Licences(workspace)

    @cache
    def find_blob(name: str) -> str | LeaveReason:
        path = workspace / name
        try:
            if roots.is_negative(path):
                return LeaveReason.NEGATIVE_ROOT
            data = read_regular(path, MAX_FILE_BYTES, below=workspace)
        except (OSError, RuntimeError, ValueError):  # also for a loop of links, or a path outside the workspace
            return LeaveReason.GONE
        if sources.find_reason(path) or sources.find_mark(path, data):
            return LeaveReason.NOT_OWN
        refusal = _find_refusal(policy or SourcePolicy(), name, data, licences.find_licence(path, data))
        return hashlib.sha256(data).hexdigest() if refusal is None else _LEAVES.get(refusal[0], LeaveReason.CHANGED)

    carried = CarriedRecords()
    if not records.exists():
        return carried
    for line, record in read_record_lines(records):
        source = record.source
        if (workspace / source.path).is_relative_to(folder):
            continue
        carried.seen += 1
        blob = find_blob(source.path)
        if blob == source.blob and source.golden != roots.is_golden(workspace / source.path):
            carried.dropped[LeaveReason.GOLDEN_ROOT] += 1
        elif blob == source.blob:
            carried.lines.append(line)
            carried.kept += 1
        else:
            carried.dropped[blob if isinstance(blob, LeaveReason) else LeaveReason.CHANGED] += 1
    carried.check()
    return carried
