"""The extracted corpus as an artifact: built when its inputs are new, reused when they are not."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from pydantic import BaseModel

from mens_pipeline.corpus.extract.source_file import SourceFile
from mens_pipeline.corpus.extract.source_roots import find_source_roots
from mens_pipeline.corpus.extract.sources import (
    PAGE_SUFFIXES,
    ROOTS_FILE,
    VOX_SUFFIXES,
    commit_of,
    files_below,
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
from mens_pipeline.corpus.telemetry.table import (
    TelemetryAccount,
    TelemetryQuery,
    read_telemetry,
    telemetry_fingerprint,
    telemetry_pairs,
)
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import grammar_fingerprint
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.stage import Stage
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


KIND: Final = "extracted_corpus"
STAGE: Final = Stage(KIND, (__name__,))
RECORDS: Final = "records.jsonl"
REPORT: Final = "report.json"
FILES: Final = "files.jsonl"
TELEMETRY: Final = "telemetry.jsonl"


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


@dataclass
class Reuse:
    """Whether the whole corpus was there already; else the files that were taken over, and those that were extracted.

    `differs`: a full extraction gave other bytes than the earlier one of the same inputs did.
    """

    is_whole: bool = False
    known: int = 0
    extracted: int = 0
    differs: bool = False


def build_extracted_corpus(  # noqa: PLR0913 - what, where to, and what is known
    root: Path,
    store: ArtifactStore,
    workers: int = 1,
    telemetry: TelemetryQuery | None = None,
    *,
    full: bool = False,
    pinned: Mapping[str, Any] | None = None,
) -> tuple[Artifact, Reuse]:
    """Extract a workspace into the store; files that have not changed since the latest corpus are not read anew.

    The corpus does not depend on the number of `workers`. `full` extracts every file, whatever is known; an earlier
    corpus of the same inputs is replaced. `pinned` is what `params_of` gave when the workspace was looked at; None to
    take it as it is.

    Returns:
        The corpus, and how much of it was known. Its folder holds `records.jsonl`, `telemetry.jsonl` (redacted pairs,
        none without a database), `files.jsonl` (what each file gave, and where its records lie) and `report.json`.

    Raises:
        SourceNotFoundError: `root` is no folder.
        RefusedError: The workspace or the telemetry is not what was pinned, or changed while it was read.
    """
    params = params_of(root, telemetry)
    changed = [name for name, value in params.items() if pinned is not None and pinned[name] != value]
    if changed:
        advice = "Materialise workspace_snapshot with it: what is read is what was checked."
        raise RefusedError(f"{root}: {', '.join(changed)} changed since workspace_snapshot looked. {advice}")
    inputs, reuse = STAGE.inputs((), params), Reuse()

    def write(folder: Path) -> dict[str, Any]:
        known = None if full else _latest(store, inputs)
        extra = _write(root, folder, known, params["commit"], reuse, workers)
        telemetry_counts = _write_telemetry(folder / TELEMETRY, telemetry)
        if params_of(root, telemetry) != params:
            raise RefusedError(f"{root}: the workspace or the telemetry changed while it was read. Run again.")
        return {**extra, "telemetry": telemetry_counts, "grammar": grammar_fingerprint()}

    before = store.find(KIND, inputs)
    corpus, reuse.is_whole = STAGE.build(store, (), params, write, force=full)
    reuse.differs = before is not None and before.manifest != corpus.manifest
    return corpus, reuse


def _write(  # noqa: PLR0913, PLR0917 - where from, where to, what is known
    root: Path, folder: Path, latest: Artifact | None, commit: str | None, reuse: Reuse, workers: int
) -> dict[str, Any]:
    accounts = {unit: Account[DropReason]() for unit in Unit}
    drops: list[Drop] = []
    num_records = position = 0
    with ExitStack() as stack:
        previous = None
        if latest is not None:
            with (latest.path / FILES).open(encoding="utf-8") as lines:
                known = {account["path"]: account for account in map(json.loads, lines)}
            earlier = stack.enter_context((latest.path / RECORDS).open("rb"))
            previous = PreviousExtraction(known, earlier, latest.inputs["commit"])
        records = stack.enter_context((folder / RECORDS).open("w", encoding="utf-8", newline="\n"))
        index = stack.enter_context((folder / FILES).open("w", encoding="utf-8", newline="\n"))

        def look_up(file: SourceFile) -> FileOutcome | None:
            outcome = previous.outcome(file) if previous is not None else None
            reuse.known += outcome is not None
            reuse.extracted += outcome is None
            return outcome

        for outcome in extract_workspace(root, commit, look_up, workers):
            text = "".join(f"{line}\n" for line in outcome.lines)
            start, position = position, position + len(text.encode())
            records.write(text)
            index.write(json.dumps({**outcome.account(), "start": start, "end": position}) + "\n")
            outcome.count(accounts)
            drops.extend(outcome.drops)
            num_records += len(outcome.lines)
    report = extraction_report(accounts, num_records)
    details = {**report, "drops": [asdict(drop) for drop in drops]}
    (folder / REPORT).write_text(json.dumps(details, indent=2) + "\n", encoding="utf-8")
    return report


def _latest(store: ArtifactStore, inputs: dict[str, Any]) -> Artifact | None:
    """Return the latest corpus, if the same rules made it and it is as it was written."""
    key = store.pointed(KIND, "latest")
    previous = store.get(KIND, key) if key else None
    if previous is None or previous.is_damaged():
        return None
    is_same = all(previous.inputs.get(rule) == inputs[rule] for rule in ("code", "roots"))
    return previous if is_same else None


def params_of(root: Path, telemetry: TelemetryQuery | None = None) -> dict[str, Any]:
    """Return all that decides what an extraction gives beside the code: contents, roots, commit."""
    files = files_below(root, (*VOX_SUFFIXES, *PAGE_SUFFIXES, ROOTS_FILE))
    return {
        "sources": tree_fingerprint(root, files),
        "roots": find_source_roots(root).fingerprint(),
        "commit": commit_of(root),
        "telemetry": None if telemetry is None else telemetry_fingerprint(telemetry),
    }


def _write_telemetry(path: Path, query: TelemetryQuery | None) -> dict[str, Any] | None:
    """Write the pairs of a telemetry table, and return the counts; without a database none, and None."""
    if query is None:
        path.touch()
        return None
    account = TelemetryAccount()
    write_jsonl(path, telemetry_pairs(read_telemetry(query), account, query.table))
    account.check()
    return {"table": query.table, **account.as_json()}
