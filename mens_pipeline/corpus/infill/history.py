"""Turn the git history of a workspace into holes: lines that a commit added, in the program before the commit.

The program does not have other changes of the commit yet. Lines that the commit removed at this place are cut out.
"""

import hashlib
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from threading import Timer
from typing import IO, Final

from mens_pipeline.corpus.extract.git import GIT, NO_GIT, ask_git, run_git
from mens_pipeline.corpus.extract.sources import VENDORED, VOX_SUFFIXES, is_entered
from mens_pipeline.corpus.infill.holes import MAX_LINES
from mens_pipeline.corpus.schema.account import Account
from mens_pipeline.corpus.schema.file_text import NUM_HEAD_BYTES, is_generated
from mens_pipeline.corpus.schema.reasons import ReplayDrop
from mens_pipeline.errors import RefusedError, SourceNotFoundError, require_folder
from mens_pipeline.language import Mode, analyze, mode_of, tokenize, visible_text

_MOST_COMMITS: Final = 20_000  # only the newest commits are read
_MOST_PROGRAMS: Final = 20
"""Programs that a person changes at once; larger commits rename, format or move."""
_MOST_HUNKS: Final = 100  # places where a person changes a program at once
_MOST_BYTES: Final = 262_144  # of a program
_LINE_BYTES: Final = 4_096  # of a line of git's output
_MOST_SECONDS: Final = 300.0
"""Limit for the log and for each file. A checkout may contain a pipe in place of a file, which would block forever."""

_LOG: Final = (
    *(
        "log",
        "--format=%x01%H %ct",
        "--no-merges",
        "--raw",
        "--no-abbrev",
        "--find-renames",
        "--diff-filter=AMR",
        "--relative",
    ),
    *("--patch", "--unified=0", "--inter-hunk-context=0", "--no-color", "--no-ext-diff", "--no-textconv"),
    f"--max-count={_MOST_COMMITS}",
)
_PROGRAMS: Final = ("--", *(f":(glob)**/*{suffix}" for suffix in VOX_SUFFIXES))
_HUNK: Final = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_OTHERWISE: Final = {"A": ReplayDrop.NEW_FILE, "R": ReplayDrop.RENAMED}
"""Status letter of git -> the reason to drop the file."""


@dataclass(frozen=True, slots=True)
class HistoryHole:
    """Lines that a commit added to a program.

    `time` is the commit time, in seconds since 1970. `prefix` ends with the indentation that an editor adds; `middle`
    holds the lines, without white space around them.
    """

    commit: str
    time: int
    path: str
    prefix: str
    middle: str
    suffix: str
    mode: Mode

    @property
    def digest(self) -> bytes:
        """SHA-256 of program, place and lines."""
        parts = (self.path, self.prefix, self.middle, self.suffix)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()


@dataclass(kw_only=True)
class History(Account[ReplayDrop]):
    """Holes, the oldest first, and counts of skipped commits, files and places; `begin` is in seconds since 1970."""

    begin: int
    holes: list[HistoryHole] = field(default_factory=list)

    @property
    def by_week(self) -> dict[int, int]:
        """Number of holes by week, from 1; holes from an older branch count in the first."""
        return dict(sorted(Counter(week_of(hole.time - self.begin) for hole in self.holes).items()))

    def drop(self, reason: ReplayDrop, number: int = 1) -> None:
        """Count items that give no hole."""
        self.seen += number
        self.dropped[reason] += number


def week_of(seconds: int) -> int:
    """Return the week, from 1, after a number of seconds."""
    return max(0, seconds) // (7 * 24 * 3_600) + 1


def read_history(workspace: Path, since: str, number: int) -> History:
    """Return the history of a workspace with up to `number` holes, drawn by hash, so that the draw is always the same.

    The workspace is a folder of a git checkout, or a bare repository. `since` is a commit, to read everything that is
    not in it, or a date (`2026-05-01`, UTC).

    Raises:
        SourceNotFoundError: There is no such folder, commit or date.
        RefusedError: There is no git history, a shallow one, or it cannot be read.
    """
    begin, chosen = _beginning(workspace, since)
    history = History(begin=begin)
    count_merges = ("rev-list", "--count", "--merges", *chosen, *_PROGRAMS)
    with _run(workspace, count_merges) as git, _watch(git) as printed:
        history.drop(ReplayDrop.MERGE, int(printed.read() or 0))  # a command that fails prints nothing
    with _run(workspace, (*_LOG, *chosen, *_PROGRAMS)) as git, _watch(git) as printed:
        commits = [commit for commit in _commits(_beginnings_of_lines(printed)) if _is_written(commit, history)]
    changed = [(c, file) for c in reversed(commits) for file in c.files if _is_changed(file, history)]
    found = [*_read_holes(workspace, changed, history)]
    by_digest = {hole.digest: hole for hole in reversed(found)}
    history.drop(ReplayDrop.DUPLICATE, len(found) - len(by_digest))
    drawn = [by_digest[digest] for digest in sorted(by_digest)[:number]]
    history.drop(ReplayDrop.SAMPLED_OUT, len(by_digest) - len(drawn))
    history.holes = sorted(drawn, key=lambda hole: (hole.time, hole.commit, hole.path, len(hole.prefix)))
    history.seen, history.kept = history.seen + len(drawn), len(drawn)
    history.check()
    return history


def _beginning(workspace: Path, since: str) -> tuple[int, tuple[str, ...]]:
    require_folder(workspace, "Name a Vox workspace.")
    try:
        is_shallow = ask_git(workspace, ("rev-parse", "--is-shallow-repository")).strip()
    except RefusedError as error:
        said = str(error)
        advice = "Install git." if said == NO_GIT else "Fix this, and replay again."
        advice = "Name a folder of a git checkout." if "not a git repository (or any" in said else advice
        raise RefusedError(f"{workspace}: cannot read its history: {said}. {advice}") from error
    if is_shallow == "true":
        raise RefusedError(f"{workspace}: a shallow clone, without its history. Run `git fetch --unshallow` in it.")
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{since}^{{commit}}")
    commit = run_git(workspace, asked) if "\0" not in since else None  # not allowed in arguments of a process
    if commit is not None:
        time = run_git(workspace, ("log", "-1", "--format=%ct", commit))
        return int(time or 0), (f"{commit}..HEAD",)
    try:
        date = datetime.fromisoformat(since)
    except ValueError as error:
        advice = "Name a commit, or a date such as 2026-05-01, with --since."
        raise SourceNotFoundError(f"{since}: neither a commit of {workspace} nor a date. {advice}") from error
    date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    # Not `--since`, which stops at the first older commit: the dates of rebased commits are not in order.
    return int(date.timestamp()), (f"--since-as-filter={date.isoformat()}", "HEAD")


@contextmanager
def _run(
    folder: Path, words: tuple[str, ...], asked: int | IO[bytes] = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    with (
        TemporaryFile() as errors,
        subprocess.Popen(  # noqa: S603 - our own words
            (*GIT, *words), cwd=folder, stdin=asked, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        try:
            yield process
            code = process.wait()
        finally:
            process.kill()
        errors.seek(0)
        said = visible_text(" ".join(errors.read(_LINE_BYTES).decode("utf-8", "replace").split()))
    if code:
        why = f"failed: {said.rstrip('.')}" if said else f"failed, or took over {_MOST_SECONDS:.0f} seconds"
        is_partial = run_git(folder, ("config", "--get-regexp", r"^remote\..*\.promisor$")) is not None
        advice = "Name a later commit or date, or run `git fsck`; git must be 2.37 or newer."
        advice = "This clone lacks old files: run `git fetch --refetch --no-filter` in it." if is_partial else advice
        raise RefusedError(f"{folder}: git {words[0]} {why}. {advice}")


@contextmanager
def _watch(process: subprocess.Popen[bytes]) -> Iterator[IO[bytes]]:
    assert process.stdout is not None, "asked for"  # noqa: S101 - an internal invariant
    timer = Timer(_MOST_SECONDS, process.kill)
    timer.start()
    try:
        yield process.stdout
    finally:
        timer.cancel()


def _beginnings_of_lines(stream: IO[bytes]) -> Iterator[bytes]:
    is_begin = True
    while part := stream.readline(_LINE_BYTES):
        if is_begin and (part.endswith(b"\n") or len(part) == _LINE_BYTES):
            yield part
        is_begin = part.endswith(b"\n")


@dataclass(frozen=True, slots=True)
class _File:
    """A changed file. `hunks` holds first line and number of lines, before and after the commit."""

    mode: bytes
    blobs: tuple[bytes, bytes]
    status: str
    path: str
    hunks: list[tuple[int, int, int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Commit:
    id: str
    time: int
    files: list[_File] = field(default_factory=list)


def _commits(lines: Iterable[bytes]) -> Iterator[_Commit]:
    commit, place = _Commit("", 0), -1
    for line in lines:
        if line.startswith(b"\x01"):
            if commit.id:
                yield commit
            name, time = line[1:].decode().split()
            commit, place = _Commit(name, int(time)), -1
        elif line.startswith(b":"):
            about, _, path = line.rstrip(b"\n").partition(b"\t")
            _, mode, old, new, status = about.split()
            if path.startswith(b'"'):  # as git writes a name with non-ASCII characters
                path = path[1:-1].decode("unicode_escape", "ignore").encode("latin-1")
            name = path.decode("utf-8", "backslashreplace")
            commit.files.append(_File(mode, (old, new), status.decode()[0], name))
        elif line.startswith(b"diff --git "):
            place += 1
        elif (hunk := _HUNK.match(line)) and len(commit.files[place].hunks) <= _MOST_HUNKS:
            start, removed, then, added = (int(number or 1) for number in hunk.groups())
            commit.files[place].hunks.append((start, removed, then, added))
    if commit.id:
        yield commit


def _is_written(commit: _Commit, history: History) -> bool:
    is_written = sum(file.status == "M" for file in commit.files) <= _MOST_PROGRAMS
    history.drop(ReplayDrop.MASS_CHANGE, not is_written)
    return is_written


def _is_changed(file: _File, history: History) -> bool:
    if file.status in _OTHERWISE:
        history.drop(_OTHERWISE[file.status])
    elif not all(is_entered(name) and name not in VENDORED for name in PurePosixPath(file.path).parts[:-1]):
        history.drop(ReplayDrop.GENERATED)
    elif not file.mode.startswith(b"100"):  # a link
        history.drop(ReplayDrop.UNREADABLE)
    elif not file.hunks:
        history.drop(ReplayDrop.ADDS_NOTHING)
    elif len(file.hunks) > _MOST_HUNKS:
        history.drop(ReplayDrop.MASS_CHANGE)
    else:
        return True
    return False


def _read_holes(workspace: Path, changed: Iterable[tuple[_Commit, _File]], history: History) -> Iterator[HistoryHole]:
    with TemporaryFile() as asked:
        asked.writelines(blob + b"\n" for _, file in changed for blob in file.blobs)
        asked.seek(0)
        with _run(workspace, ("cat-file", "--batch"), asked) as git:
            for commit, file in changed:
                with _watch(git) as printed:
                    before, after = _read_blob(printed), _read_blob(printed)
                if before is None or after is None:
                    history.drop(ReplayDrop.UNREADABLE)
                elif is_generated(file.path, after[:NUM_HEAD_BYTES]):
                    history.drop(ReplayDrop.GENERATED)
                else:
                    yield from _cut(commit, file, before, after, history)


def _read_blob(printed: IO[bytes]) -> str | None:
    about = printed.readline().split()
    if len(about) != 3:  # noqa: PLR2004 - id, type and size; a missing blob has no size
        return None
    left = int(about[2]) + 1
    data = printed.read(min(left, _MOST_BYTES))
    is_whole = len(data) == left
    while (left := left - len(data)) and (data := printed.read(min(left, _MOST_BYTES))):
        pass
    try:
        return data.removesuffix(b"\n").decode().replace("\r\n", "\n") if is_whole else None
    except UnicodeDecodeError:
        return None


def _cut(commit: _Commit, file: _File, before: str, after: str, history: History) -> Iterator[HistoryHole]:
    old, new = (StringIO(text, newline="\n").readlines() for text in (before, after))  # as git counts them
    mode = mode_of(file.path)
    for start, removed, then, added in file.hunks:
        # If a hunk removes or adds no lines, git gives the line before it.
        first = start - 1 if removed else start
        gone, came = "".join(old[first : first + removed]), "".join(new[then - 1 : then - 1 + added])
        middle = came.strip()
        indent, rest = came[: len(came) - len(came.lstrip())], came[len(came.rstrip()) :]
        prefix, suffix = "".join(old[:first]) + indent, rest + "".join(old[first + removed :])
        if not added:
            history.drop(ReplayDrop.ADDS_NOTHING)
        elif added > MAX_LINES:
            history.drop(ReplayDrop.TOO_LONG)
        elif gone.split() == came.split():
            history.drop(ReplayDrop.WHITE_SPACE)
        elif not prefix or not _has_code(prefix, middle, suffix):
            history.drop(ReplayDrop.NO_CODE)
        elif not analyze(prefix + middle + suffix, mode).ok:
            history.drop(ReplayDrop.REJECTED)
        else:
            yield HistoryHole(commit.id, commit.time, file.path, prefix, middle, suffix, mode)


def _has_code(prefix: str, middle: str, suffix: str) -> bool:
    start, end = len(prefix), len(prefix + middle)
    tokens = (token for token in tokenize(prefix + middle + suffix) if start <= token.start < end)
    return any(not token.is_trivia and any(map(str.isalnum, token.text)) for token in tokens)
