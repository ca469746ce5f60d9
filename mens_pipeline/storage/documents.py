"""Folders that are filled before they join a store, locks, and small files beside the artifacts of a kind that change.

Those are pointers, and lines that are only added to. They lie in the folder of the store, or in its object storage;
several processes and machines may change them at once.
"""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.storage.files import disk_error

if TYPE_CHECKING:
    from mens_pipeline.storage.remote import Remote


_DRAFT: Final = re.compile(r"\.draft-.+-[0-9a-f]{32}")
_PART: Final = re.compile(r"\..+\.[0-9a-f]{32}\.part")
"""Names of folders and of files that we make; a person's own file must never look like one."""
_YOUNG_SECONDS: Final = 60.0
"""Age from which on a draft that nobody holds is one of a process that was killed."""
_LOOKED: Final[dict[Path, float]] = {}
"""When drafts were looked for in a folder, which takes longer the more it holds; none grows too old meanwhile."""

_TAG: Final = "CACHEDIR.TAG"
_TAG_TEXT: Final = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# Outputs of mens-pipeline; not a source of anything.\n"
)


def tag_as_cache(root: Path) -> None:
    """Let tools for backups pass a folder by."""
    (root / _TAG).write_text(_TAG_TEXT, encoding="utf-8")


@contextmanager
def draft_folder(target: Path) -> Iterator[Path]:
    """Make a folder beside the one whose place it shall take; what is left of it in the end is deleted.

    Drafts of processes that were killed are deleted as well; they are looked for once a minute.
    """
    # Not by process: on a shared volume, each pod has a process of the same number.
    path = target.with_name(f".draft-{target.name}-{uuid4().hex}")
    path.mkdir()
    handle = os.open(path, os.O_RDONLY)
    try:
        hold_draft(handle, target.parent)
        yield path
    finally:
        os.close(handle)
        shutil.rmtree(path, ignore_errors=True)


def hold_draft(handle: int, folder: Path) -> None:
    """Hold a draft, a folder or file that is open, and remove those beside it that nobody holds any more."""
    with suppress(OSError):  # on a file system without locks no draft is ever taken for abandoned
        fcntl.flock(handle, fcntl.LOCK_EX)
    _remove_abandoned(folder)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock that processes and threads wait for; the file that stands for it stays."""
    with path.open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_abandoned(folder: Path) -> None:
    """Remove the drafts of processes that were killed: a process holds a lock on its draft for as long as it lives."""
    now = time.monotonic()
    if now - _LOOKED.get(folder, -_YOUNG_SECONDS) < _YOUNG_SECONDS:
        return
    _LOOKED[folder] = now
    found: list[Path] = []
    with suppress(OSError):  # a folder that may be written, and not listed
        found = [
            path
            for path in folder.iterdir()
            if (_DRAFT.fullmatch(path.name) if path.is_dir() else _PART.fullmatch(path.name))
        ]
    for path in found:
        with suppress(OSError):  # held, gone meanwhile, or not ours
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(handle).st_mtime > _YOUNG_SECONDS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            finally:
                os.close(handle)


LOCK: Final = ".publishing"
"""In the folder of a store: held while something in it takes the place of something else."""

_TRIES: Final = 50


def unwritable(error: OSError, root: Path) -> ConfigurationError:
    """Build the error for a store that cannot be written."""
    return disk_error(error, root, "Set MENS_STORE_ROOT to a folder that you may write and that has room.")


class Documents:
    """The documents of a store."""

    def __init__(self, root: Path, remote: "Remote | None" = None) -> None:
        """Use a folder, or the object storage that stands behind it; then nothing in the folder counts."""
        self._root = root
        self._remote = remote

    def place(self, kind: str, name: str) -> str:
        """Name a document in messages."""
        return str(self._root / kind / name) if self._remote is None else f"{self._remote.url}/{kind}/{name}"

    def read(self, kind: str, name: str) -> bytes:
        """Read a document; one that is not there is empty."""
        if self._remote is not None:
            return self._remote.read(f"{kind}/{name}").content
        path = self._root / kind / name
        return path.read_bytes() if path.is_file() else b""

    def amend(self, kind: str, name: str, change: Callable[[bytes], bytes]) -> None:
        """Change a document, also beside other writers: when one of them came first, `change` is called again."""
        path = self._root / kind / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with hold_lock(self._root / LOCK):
                if self._remote is None:
                    _write(path, change(self.read(kind, name)))
                else:
                    _swap(self._remote, f"{kind}/{name}", change)
        except OSError as error:
            raise unwritable(error, self._root) from error

    def replace(self, kind: str, name: str, seen: bytes, content: bytes) -> None:
        """Change a document that still is what was seen; refuse (`RefusedError`) one that was changed since."""

        def change(found: bytes) -> bytes:
            if found != seen:
                place = self.place(kind, name)
                raise RefusedError(f"{place}: changed meanwhile, perhaps on another machine. Run the same again.")
            return content

        self.amend(kind, name, change)


def _swap(remote: "Remote", name: str, change: Callable[[bytes], bytes]) -> None:
    """Change an object by compare-and-swap."""
    written = None
    for _ in range(_TRIES):
        found = remote.read(name)
        # A request that was repeated may have been answered by its own first try.
        if found.content == written:
            return
        written = change(found.content)
        if written == found.content or remote.swap(name, written, found.version):
            return
    raise ConfigurationError(f"{remote.url}/{name}: changed by others {_TRIES} times in a row. Run the same again.")


def _write(path: Path, content: bytes) -> None:
    """Replace a file; after a power cut its content is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as target:
            target.write(content)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
