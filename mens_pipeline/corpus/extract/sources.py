"""The files of a Vox workspace: list, hash and watch them; find negative and golden roots, and the git commit."""

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, model_validator

from mens_pipeline.errors import ConfigurationError, RefusedError, SourceNotFoundError, did_you_mean
from mens_pipeline.storage.files import is_out_of_place, open_regular

VOX_SUFFIXES: Final = (".vox", ".vox.ui")
PAGE_SUFFIXES: Final = (".md",)
ROOTS_FILE: Final = "examples.ssot.v1.yaml"
"""Names the folders that never train, and those that evaluate."""

_CACHE_TAG: Final = "CACHEDIR.TAG"
_SKIPPED_FOLDERS: Final = frozenset(("node_modules", "target", "__pycache__", "heldout_bench"))
"""Folders to skip: build outputs, and benchmarks, whose solutions must never train."""


def vox_files(root: Path) -> Iterator[Path]:
    """Yield the Vox programs below a folder, sorted; skip links, pipes and hidden, build or benchmark folders.

    A single file is yielded whatever its name. A missing `root` is a SourceNotFoundError.
    """
    if not root.exists():
        raise SourceNotFoundError(f"{root}: no such file or folder. Name an existing one.")
    if root.is_file():
        yield root
    else:
        yield from (path for path in files_below(root, VOX_SUFFIXES) if not is_out_of_place(path))


def files_below(root: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files below a folder with these suffixes, sorted folder by folder, links included.

    Hidden folders, build folders, benchmarks (`heldout_bench`), linked folders and tagged caches (`CACHEDIR.TAG`) are
    skipped. A folder that cannot be listed is yielded itself, so that its reader reports it as missing.
    """
    # Not recursive: a tree may be deeper than Python can recurse.
    pending = [root]
    unlisted: list[Path] = []
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            unlisted.append(folder)
            continue
        if any(entry.name == _CACHE_TAG and not _is_folder(entry) for entry in entries):
            continue
        yield from (folder / e.name for e in entries if not _is_folder(e) and e.name.endswith(suffixes))
        below = (e.name for e in reversed(entries) if _is_folder(e) and not e.is_symlink())
        pending += (folder / name for name in below if is_entered(name))
    yield from sorted(unlisted)


def is_entered(folder: str) -> bool:
    """Return whether a folder of this name is read: it is neither hidden nor for builds or benchmarks."""
    return not folder.startswith(".") and folder not in _SKIPPED_FOLDERS


def shown_name(path: Path, root: Path) -> str:
    """Return a path relative to a folder, with forward slashes; escape bytes that are not UTF-8."""
    return path.relative_to(root).as_posix().encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def tree_fingerprint(root: Path, files: Iterable[Path]) -> str:
    """Hash (SHA-256, hexadecimal) the names and contents of files; links and unreadable files count as such.

    The order of the files matters. Names are relative to `root`.
    """
    digest = hashlib.sha256()
    for path in files:
        digest.update(os.path.relpath(path, root).encode("utf-8", "surrogateescape") + b"\0")
        if is_out_of_place(path):
            digest.update(hashlib.sha256(b"a link").digest())
            continue
        try:
            with open_regular(path, follow=False) as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            digest.update(hashlib.sha256(f"unreadable: {error.errno}".encode()).digest())
    return digest.hexdigest()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


@dataclass(frozen=True, slots=True)
class WatchedState:
    """A tree at one moment: the SHA-256 over path, size, and times of every file, hexadecimal.

    The times are those of the content and of the inode. The latter cannot be set, so it also changes with a file that
    was replaced by one of the same size and modification time.

    `touched` is the latest inode change, in seconds since 1970; 0 without files.
    """

    fingerprint: str
    num_files: int
    touched: float

    def is_settled(self, now: float, seconds: float) -> bool:
        """Return whether no file has changed for `seconds`; a time in the future counts as long ago."""
        return not now - seconds < self.touched <= now


def sight(
    root: Path, suffixes: tuple[str, ...], most: int, counts: Callable[[str], bool] = lambda _path: True
) -> WatchedState:
    """Look at the files of a tree with these suffixes.

    `counts` filters them by their path below the root, with `/`.

    Raises:
        RefusedError: There are more than `most`.
    """
    digest = hashlib.sha256()
    touched, num_files = 0.0, 0
    for path in files_below(root, suffixes):
        place = path.relative_to(root).as_posix()
        if not counts(place):
            continue
        num_files += 1
        if num_files > most:
            raise RefusedError(f"{root}: more than {most} files that end in {', '.join(suffixes)}.")
        digest.update(place.encode("utf-8", "surrogateescape") + b"\0")
        try:
            status = path.lstat()
        except OSError as error:  # gone since it was listed
            digest.update(f"unreadable: {error.errno}\0".encode())
            continue
        digest.update(f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\0".encode())
        touched = max(touched, status.st_ctime)
    return WatchedState(digest.hexdigest(), num_files, touched)


_OPTIONS: Final = ("log.showSignature=false", "protocol.allow=never", "core.fsmonitor=false")
_LOCAL: Final = (
    *("DIR", "WORK_TREE", "IMPLICIT_WORK_TREE", "COMMON_DIR", "INDEX_FILE", "PREFIX", "NAMESPACE", "CONFIG"),
    *("CONFIG_PARAMETERS", "CONFIG_COUNT", "OBJECT_DIRECTORY", "ALTERNATE_OBJECT_DIRECTORIES", "SHALLOW_FILE"),
    *("GRAFT_FILE", "NO_REPLACE_OBJECTS", "REPLACE_REF_BASE"),
)
"""Variables that bind git to one repository (`git rev-parse --local-env-vars`); hooks inherit them."""

_UNSET: Final = ("env", *(word for name in _LOCAL for word in ("-u", f"GIT_{name}")))
GIT: Final = (*_UNSET, "git", "--no-pager", *(word for option in _OPTIONS for word in ("-c", option)))
"""Starts every git command: it uses the current folder, and runs or fetches nothing that a configuration names."""

_NEWEST_CHANGE: Final = (
    *("log", "-1", "--format=%H", "--"),
    *(f":(glob)**/*{suffix}" for suffix in (*VOX_SUFFIXES, *PAGE_SUFFIXES)),
    f":(glob)**/{ROOTS_FILE}",
)

_MOST_SECONDS: Final = 30
"""A checkout may contain a pipe where git expects a file, which would block it forever."""


def find_newest_commit(root: Path) -> str | None:
    """Return the newest git commit that changed a program or a page; None outside a checkout or without git.

    Other commits do not change it, so they make no new corpus.
    """
    return run_git(root, _NEWEST_CHANGE)


def head_commit(folder: Path) -> str | None:
    """Return the commit that is checked out around a folder, 40 hexadecimal digits; None without one, or git."""
    return run_git(folder, ("rev-parse", "--verify", "--quiet", "HEAD^{commit}"))


def run_git(folder: Path, words: tuple[str, ...], most_seconds: float = _MOST_SECONDS) -> str | None:
    """Run git and return its output; None if it is empty, or git fails, times out or is not installed."""
    try:
        result = subprocess.run(  # noqa: S603 - our own words
            (*GIT, *words),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=most_seconds,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None if result.returncode == 0 else None


_EXAMPLES: Final = "examples"
"""Upstream keeps the file here; its roots are relative to the folder above."""

_DECIDES: Final = {"negativ": "negative_roots", "golden": "golden_roots"}
"""Part of a misspelt key -> the key that was probably meant."""
_KEYS: Final = frozenset({*_DECIDES.values(), "schema_version", "sandbox_roots", "doc_roots"})


class _Roots(BaseModel):
    """The roots file; its sandbox and page roots decide nothing.

    Unknown keys are allowed, but not near misses of the keys that decide: excluded folders would train.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    negative_roots: tuple[str, ...] = ()
    golden_roots: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _no_near_miss(cls, values: Any) -> Any:
        for key in values if isinstance(values, dict) else ():
            name = str(key)
            for mark, meant in _DECIDES.items() if name not in _KEYS else ():
                if mark in name.lower() or did_you_mean(name, [meant]):
                    raise ValueError(f"{name}: nothing reads this. Did you mean `{meant}`?")
        return values


@dataclass(frozen=True, slots=True)
class SourceRoots:
    """The roots of a workspace as absolute folders; the workspace is None without a roots file.

    Programs below `negative` never train. Programs below `golden` are golden; without any golden root, all are.
    """

    workspace: Path | None = None
    negative: tuple[Path, ...] = ()
    golden: tuple[Path, ...] = ()

    def fingerprint(self) -> str:
        """Return the roots as text, relative to the workspace and thus the same on every machine."""
        if self.workspace is None:
            return "none"
        kinds = ((os.path.relpath(root, self.workspace) for root in roots) for roots in (self.negative, self.golden))
        return "; golden ".join(" ".join(sorted(names)) for names in kinds)

    def is_negative(self, path: Path) -> bool:
        """Return whether a file is below a negative root."""
        return _is_below(path, self.negative)

    def is_golden(self, path: Path) -> bool:
        """Return whether a file may evaluate: a page, or a program below a golden root and no negative one."""
        if not path.name.endswith(VOX_SUFFIXES):
            return True
        return not self.is_negative(path) and (not self.golden or _is_below(path, self.golden))


def _is_below(path: Path, roots: tuple[Path, ...]) -> bool:
    resolved = path.resolve()
    return any(resolved.is_relative_to(root) for root in roots)


def find_source_roots(folder: Path) -> SourceRoots:
    """Find the roots file that governs a folder: its own, the one in its `examples/`, or the nearest parent's.

    Raises:
        ConfigurationError: The file is not YAML, does not fit, or is a link.
    """
    start = folder.resolve()
    for place in (start, *start.parents):
        for candidate in (place / ROOTS_FILE, place / _EXAMPLES / ROOTS_FILE):
            if candidate.is_file():
                folder = candidate.parent
                return _load(candidate, folder.parent if folder.name == _EXAMPLES else folder)
    return SourceRoots()


def _load(path: Path, workspace: Path) -> SourceRoots:
    from mens_pipeline.storage.yaml_file import load_model  # noqa: PLC0415 - loads a parser that checking files is without

    if path.is_symlink():
        raise ConfigurationError(f"{path}: a link, which may lead anywhere. Put the file itself in its place.")
    roots = load_model(path, _Roots)

    def resolve(name: str, root: str) -> Path:
        try:
            os.fsencode(root)
            return (workspace / root).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links; a NUL or half a character
            advice = "Name a folder relative to the workspace."
            raise ConfigurationError(f"{path}: {name}: {root!r} is not a path. {advice}") from error

    negative, golden = (tuple(resolve(name, root) for root in getattr(roots, name)) for name in _DECIDES.values())
    return SourceRoots(workspace, negative, golden)
