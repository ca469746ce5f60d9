"""The own files of a Vox workspace: find, list, hash and watch them; find negative and golden roots."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mens_pipeline.corpus.extract.git import (
    ask_git,
    find_checkout,
    find_remote,
    is_checkout,
    list_files,
    read_attributes,
    run_git,
)
from mens_pipeline.corpus.schema.file_text import NUM_HEAD_BYTES, decode_text, is_generated
from mens_pipeline.corpus.schema.reasons import DropReason
from mens_pipeline.errors import ConfigurationError, RefusedError, SourceNotFoundError, did_you_mean
from mens_pipeline.storage.files import is_out_of_place, open_regular

VOX_SUFFIXES: Final = (".vox", ".vox.ui")
PAGE_SUFFIXES: Final = (".md",)
ROOTS_FILE: Final = "examples.ssot.v1.yaml"
"""File that names the folders never to train on, and the folders for evaluation."""

_TAGS: Final = frozenset(("CACHEDIR.TAG", "pyvenv.cfg"))
"""Files that mark their folder as a cache or a Python environment."""

VENDORED: Final = frozenset(
    (
        *("vendor", "vendors", "third_party", "third-party", "thirdparty", "3rdparty"),
        *("node_modules", "bower_components", "site-packages"),
    )
)
"""Folders of third-party code, tracked or not."""

_BUILT: Final = frozenset(("build", "dist", "out", "target", "venv", "env", "virtualenv", "__pycache__"))
"""Folders of builds and environments, skipped if git cannot list the ignored files."""

Reason = tuple[DropReason, str]
"""The reason to leave a file out of training, with a detail for a person."""


def vox_files(root: Path, include: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the workspace's own Vox programs below a folder, sorted; skip links, pipes and benchmarks.

    If `root` is a file, yields it whatever its name. Raises `SourceNotFoundError` if `root` is missing.
    """
    if not root.exists():
        raise SourceNotFoundError(f"{root}: no such file or folder. Name an existing one.")
    if root.is_file():
        yield root
    else:
        yield from (path for path in files_below(root, VOX_SUFFIXES, include) if not is_out_of_place(path))


def files_below(root: Path, suffixes: tuple[str, ...], include: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the workspace's own files below a folder with these suffixes, as `OwnSources.files` does."""
    return (path for path, left_out in OwnSources(root, include).files(root, suffixes) if left_out is None)


def is_entered(folder: str) -> bool:
    """Return whether a folder of this name is read: it is neither hidden nor a benchmark."""
    return not folder.startswith(".") and folder != "heldout_bench"  # its solutions must never be trained on


class CheckoutOrigin(BaseModel):
    """Commit and remote of a checkout, or git's error message."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = Field(description="Its folder, relative to the workspace; `.` if it is around the workspace.")
    commit: str | None = Field(description="The newest commit that changed a program or a page.")
    remote: str | None = Field(description="URL of `origin`, without credentials.")
    problem: str | None = Field(description="Git's error message, if git failed.")


def find_problems(origins: Iterable[CheckoutOrigin]) -> list[str]:
    """Return a warning for each checkout that git cannot read."""
    advice = "Its files are recorded without a commit, and files that git ignores are not recognised."
    return [f"{origin.folder}: git: {origin.problem}. {advice}" for origin in origins if origin.problem]


@dataclass(frozen=True, eq=False)
class Checkout:
    """A git checkout around or inside a workspace, seen from `folder`, called `name` in the workspace."""

    folder: Path
    name: str

    @cached_property
    def _listing(self) -> tuple[frozenset[str], str | None]:
        try:
            return list_files(self.folder), None
        except RefusedError as error:
            return frozenset(), str(error)

    @property
    def files(self) -> frozenset[str]:
        """Files that git tracks or does not ignore; empty if git fails or ignores the folder itself."""
        return self._listing[0]

    @cached_property
    def folders(self) -> frozenset[str]:
        """The folders of `files`, and entries that may be folders: submodules and other checkouts."""
        found = set(self.files)
        for name in self.files:
            while (name := name.rpartition("/")[0]) and name not in found:
                found.add(name)
        return frozenset(found)

    @cached_property
    def attributes(self) -> dict[str, tuple[bool | None, bool | None]]:
        """File -> whether `.gitattributes` marks it as vendored, and as generated."""
        return read_attributes(
            self.folder, [name for name in self.files if name.endswith((*VOX_SUFFIXES, *PAGE_SUFFIXES))]
        )

    @cached_property
    def origin(self) -> CheckoutOrigin:
        """Its commit and remote, or git's error message."""
        commit, problem = None, self._listing[1]
        if problem is None:
            try:
                commit = ask_git(self.folder, _NEWEST_CHANGE).strip() or None
            except RefusedError as error:
                problem = None if "does not have any commits yet" in str(error) else str(error)
        remote = find_remote(self.folder) if problem is None else None
        return CheckoutOrigin(folder=self.name, commit=commit, remote=remote, problem=problem)


@dataclass(frozen=True, slots=True)
class _Folder:
    """The checkout of a folder, and the reason to leave it out; `judge` is the checkout whose rules apply."""

    checkout: Checkout | None
    judge: Checkout | None
    left_out: Reason | None


@dataclass
class OwnSources:
    """Separates the files written for a workspace from files that were copied, built or generated.

    In a git checkout, own files are tracked or not ignored; elsewhere, they are outside build folders. Files that are
    vendored or generated, by their folder, `.gitattributes` or a comment, are not own. Files that match `include`,
    patterns of paths below `root`, are always own. Create a new object if files may have changed.
    """

    root: Path
    include: tuple[str, ...] = ()
    _folders: dict[Path, _Folder] = field(default_factory=dict)

    def files(
        self, folder: Path, suffixes: tuple[str, ...], *, everything: bool = False
    ) -> Iterator[tuple[Path, Reason | None]]:
        """Yield files below a folder with these suffixes, each with the reason to leave it out, None for own files.

        Files are sorted folder by folder, links included. Skips hidden folders, benchmarks (`heldout_bench`), linked
        folders, tagged caches (`CACHEDIR.TAG`) and environments; also ignored and built folders, unless `everything` is
        set. A folder that cannot be listed is yielded itself, so that its reader reports it as missing.
        """
        # Not recursive: a tree may be deeper than Python can recurse.
        pending = [folder]
        unlisted: list[Path] = []
        while pending:
            place = pending.pop()
            try:
                with os.scandir(place) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError:
                unlisted.append(place)
                continue
            if any(entry.name in _TAGS and not _is_folder(entry) for entry in entries):
                continue
            known = self._folder(place)
            for entry in entries:
                if not _is_folder(entry) and entry.name.endswith(suffixes):
                    path = place / entry.name
                    yield path, self._judge(path, known)
            below = [place / e.name for e in reversed(entries) if _is_folder(e) and not e.is_symlink()]
            pending += (path for path in below if is_entered(path.name) and (everything or self._may_hold(path)))
        yield from ((place, None) for place in sorted(unlisted))

    def find_reason(self, path: Path) -> Reason | None:
        """Return the reason to leave a file out, whatever its content; None for an own file."""
        folders = [place for place in path.parents if self.root in place.parents]
        if not all(is_entered(place.name) and not any((place / tag).is_file() for tag in _TAGS) for place in folders):
            return DropReason.IGNORED, "hidden folders, benchmarks, caches and Python environments are never read"
        return self._judge(path, self._folder(path.parent))

    def find_mark(self, path: Path, data: bytes) -> Reason | None:
        """Return the reason to leave out a file whose content says that it is generated; None if a rule denies that."""
        head = data[:NUM_HEAD_BYTES]
        is_marked = b"generated" in head.lower() and is_generated(path.name, decode_text(head, "replace"))
        if not is_marked or self._is_included(path):
            return None
        judge = self._folder(path.parent).judge
        is_denied = judge is not None and judge.attributes.get(_name(path, judge), _SILENT)[1] is False
        return None if is_denied else (DropReason.GENERATED, "a comment says that it is generated")

    def origin_of(self, path: Path) -> CheckoutOrigin | None:
        """Return the origin of the checkout that a file belongs to; None outside one."""
        checkout = self._folder(path.parent).checkout
        return checkout.origin if checkout is not None else None

    def origins(self) -> tuple[CheckoutOrigin, ...]:
        """Return the origins of the checkouts of own files, for the folders read so far."""
        found = {f.checkout.name: f.checkout for f in self._folders.values() if f.checkout and self._is_open(f)}
        return tuple(found[name].origin for name in sorted(found))

    def _is_open(self, folder: _Folder) -> bool:
        return folder.left_out is None or bool(self.include)

    def _may_hold(self, path: Path) -> bool:
        folder = self._folder(path)
        reason = folder.left_out[0] if folder.left_out is not None else None
        return self._is_open(folder) or (reason is DropReason.VENDORED and folder.judge is not None)

    def _is_included(self, path: Path) -> bool:
        name = shown_name(path, self.root) if self.include else ""
        return any(fnmatchcase(name, one) or fnmatchcase(name, f"{one.rstrip('/')}/*") for one in self.include)

    def _folder(self, path: Path) -> _Folder:
        found = self._folders.get(path)
        if found is None:
            found = self._folders[path] = self._look(path)
        return found

    def _look(self, path: Path) -> _Folder:
        if path in {self.root, path.parent}:
            around = Checkout(path, ".") if find_checkout(path) is not None else None
            return _Folder(around, around, None)
        above = self._folder(path.parent)
        checkout = Checkout(path, shown_name(path, self.root)) if is_checkout(path) else above.checkout
        if above.left_out is not None:
            return _Folder(checkout, above.judge, above.left_out)
        left_out, name, judge = None, path.name.casefold(), above.checkout
        if judge is not None and judge.files and _name(path, judge) not in judge.folders:
            left_out = _IGNORED
        elif name in VENDORED:
            left_out = DropReason.VENDORED, f"below {path.name}/"
        elif name in _BUILT and not (judge is not None and judge.files):
            left_out = DropReason.IGNORED, f"below {path.name}/, a folder of builds or environments"
        return _Folder(checkout, above.checkout if left_out else checkout, left_out)

    def _judge(self, path: Path, folder: _Folder) -> Reason | None:
        left_out, judge = folder.left_out, folder.judge
        if (judge is None and left_out is None) or self._is_included(path):
            return None
        if judge is None or (left_out is not None and left_out[0] is DropReason.IGNORED):
            return left_out
        name = _name(path, judge)
        if left_out is None and judge.files and name not in judge.files:
            return _IGNORED
        is_vendored, is_made = judge.attributes.get(name, _SILENT)
        if is_vendored:
            return DropReason.VENDORED, "linguist-vendored in .gitattributes"
        if is_made:
            return DropReason.GENERATED, "linguist-generated in .gitattributes"
        return left_out if is_vendored is None else None


_IGNORED: Final = DropReason.IGNORED, "git ignores it"
_SILENT: Final = None, None


def _name(path: Path, checkout: Checkout) -> str:
    return str(path)[len(str(checkout.folder)) :].replace(os.sep, "/").lstrip("/")


def shown_name(path: Path, root: Path) -> str:
    """Return a path relative to a folder, with forward slashes; escape bytes that are not UTF-8."""
    return path.relative_to(root).as_posix().encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def tree_fingerprint(root: Path, files: Iterable[Path]) -> str:
    """Return the hexadecimal SHA-256 of names below `root` and contents of files, in order; links are not followed."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(os.path.relpath(path, root).encode("utf-8", "surrogateescape") + b"\0")
        if is_out_of_place(path):
            digest.update(hashlib.sha256(b"a link").digest())
            continue
        try:
            with open_regular(path, below=root if path.is_relative_to(root) else path.parent) as content:
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
    """State of a tree at one moment.

    `fingerprint` is the hexadecimal SHA-256 over path, size, modification time and inode change time of every file. The
    last cannot be set, so it reveals a file replaced by one of the same size and modification time. `touched` is the
    latest inode change, in seconds since 1970; 0 without files.
    """

    fingerprint: str
    num_files: int
    touched: float

    def is_settled(self, now: float, seconds: float) -> bool:
        """Return whether no file has changed for `seconds`; a time in the future counts as long ago."""
        return not now - seconds < self.touched <= now


def sight(
    root: Path,
    suffixes: tuple[str, ...],
    most: int,
    counts: Callable[[str], bool] = lambda _path: True,
    include: tuple[str, ...] = (),
) -> WatchedState:
    """Return the state of a tree's own files with these suffixes.

    `counts` filters them by their path below the root, with `/`; `include` is passed to `OwnSources`.

    Raises `RefusedError` if there are more than `most` files.
    """
    digest = hashlib.sha256()
    touched, num_files = 0.0, 0
    for path in files_below(root, suffixes, include):
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


_NEWEST_CHANGE: Final = (
    *("log", "-1", "--format=%H", "--"),
    *(f":(glob)**/*{suffix}" for suffix in (*VOX_SUFFIXES, *PAGE_SUFFIXES)),
    f":(glob)**/{ROOTS_FILE}",
)


def find_newest_commit(root: Path) -> str | None:
    """Return the newest git commit that changed a program or a page; None outside a checkout or without git."""
    return run_git(root, _NEWEST_CHANGE)


_EXAMPLES: Final = "examples"
"""Upstream's folder for the file, whose roots are relative to the folder above."""

_DECIDES: Final = {"negativ": "negative_roots", "golden": "golden_roots"}
"""Part of a misspelt key -> the key that was probably meant."""
_KEYS: Final = frozenset({*_DECIDES.values(), "schema_version", "sandbox_roots", "doc_roots"})


class _Roots(BaseModel):
    """The roots file; its sandbox and page roots have no effect.

    Unknown keys are allowed, but not misspelt known ones, which would let excluded folders into training.
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
                    raise ValueError(f"{name}: unknown key. Did you mean `{meant}`?")
        return values


@dataclass(frozen=True, slots=True)
class SourceRoots:
    """The roots of a workspace as absolute folders; `workspace` is None without a roots file.

    Programs below `negative` are never trained on. Programs below `golden` are golden; without golden roots, all are.
    """

    workspace: Path | None = None
    negative: tuple[Path, ...] = ()
    golden: tuple[Path, ...] = ()

    def fingerprint(self) -> str:
        """Return the roots as text, relative to the workspace, so that it is the same on every machine."""
        if self.workspace is None:
            return "none"
        kinds = ((os.path.relpath(root, self.workspace) for root in roots) for roots in (self.negative, self.golden))
        return "; golden ".join(" ".join(sorted(names)) for names in kinds)

    def is_negative(self, path: Path) -> bool:
        """Return whether a file is below a negative root."""
        return _is_below(path, self.negative)

    def is_golden(self, path: Path) -> bool:
        """Return whether a file may be held out: a page, or a program below a golden root and no negative root."""
        if not path.name.endswith(VOX_SUFFIXES):
            return True
        return not self.is_negative(path) and (not self.golden or _is_below(path, self.golden))


def _is_below(path: Path, roots: tuple[Path, ...]) -> bool:
    resolved = path.resolve()
    return any(resolved.is_relative_to(root) for root in roots)


def find_source_roots(folder: Path) -> SourceRoots:
    """Find the roots file that governs a folder: its own, the one in its `examples/`, or the nearest parent's.

    Raises `ConfigurationError` if the file is not YAML, does not match the schema, or is a link.
    """
    start = folder.resolve()
    for place in (start, *start.parents):
        for candidate in (place / ROOTS_FILE, place / _EXAMPLES / ROOTS_FILE):
            if candidate.is_file():
                folder = candidate.parent
                return _load(candidate, folder.parent if folder.name == _EXAMPLES else folder)
    return SourceRoots()


def _load(path: Path, workspace: Path) -> SourceRoots:
    from mens_pipeline.storage.yaml_file import load_model  # noqa: PLC0415 - loads a parser, useless for checking files

    if path.is_symlink():
        raise ConfigurationError(f"{path}: a symbolic link. Replace it with the file itself.")
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
