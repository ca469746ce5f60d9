"""Draft folders, locks, and documents: small files of a store that change, such as pointers and append-only logs.

Documents are kept in the folder of the store or in its object storage. Several processes and machines may change them
at once.
"""

import fcntl
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.storage.files import disk_error, named_errors

if TYPE_CHECKING:
    from mens_pipeline.storage.remote import Remote


_DRAFT: Final = re.compile(r"\.draft-.+-[0-9a-f]{32}")
_PART: Final = re.compile(r"\..+\.[0-9a-f]{32}\.part")
"""Names of our drafts; a user's own file must never match one."""
_YOUNG_SECONDS: Final = 60.0
"""An unlocked draft that is older belonged to a process that was killed."""
_QUIET_SECONDS: Final = 2.0
_LOG: Final = logging.getLogger(__name__)
_LOOKED: Final[dict[Path, float]] = {}
"""Folder -> time of the last search for drafts, since a search is slow in a folder with many files."""

TAG: Final = "CACHEDIR.TAG"
"""Marker file in the root of a store, rewritten with each draft."""
_TAG_TEXT: Final = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# Outputs of mens-pipeline; not a source of anything.\n"
)


def tag_as_cache(root: Path) -> None:
    """Mark a folder as a cache, which backup tools skip."""
    (root / TAG).write_text(_TAG_TEXT, encoding="utf-8")


@contextmanager
def draft_folder(target: Path) -> Iterator[Path]:
    """Make a folder next to `target`, for the caller to rename; delete it at the end if it is still there.

    Also delete drafts of processes that were killed, once a minute.
    """
    # Not the process id: on a shared volume, pods have the same ids.
    path = target.with_name(f".draft-{target.name}-{uuid4().hex}")
    path.mkdir()
    handle = os.open(path, os.O_RDONLY)
    try:
        hold_draft(handle, target.parent)
        with named_errors(path):
            yield path
    finally:
        os.close(handle)
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def hold_folder(path: Path) -> Iterator[None]:
    """Keep a work folder from being removed while the block runs, however old its files look; several may hold it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # on a file system without locks no folder ever counts as abandoned
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


@contextmanager
def lock_abandoned(path: Path) -> Iterator[int]:
    """Lock a draft or a work folder, and yield its handle; raise `OSError` if a process holds it."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle
    finally:
        os.close(handle)


def hold_draft(handle: int, folder: Path) -> None:
    """Lock an open draft, a folder or a file, and remove abandoned drafts from its parent folder."""
    with suppress(OSError):  # on a file system without locks no draft ever counts as abandoned
        fcntl.flock(handle, fcntl.LOCK_EX)
    _remove_abandoned(folder)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock across processes and threads; `ConfigurationError` on a file system without locks."""
    with path.open("a", encoding="utf-8") as lock:
        notice = Timer(_QUIET_SECONDS, _LOG.warning, ("%s: locked; waiting for the process that holds it.", path))
        notice.daemon = True
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                notice.start()
                fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            problem = f"its file system does not support locks ({error.strerror}). Use a folder on another one."
            raise ConfigurationError(f"{path}: {problem}") from error
        finally:
            notice.cancel()
        yield


def _remove_abandoned(folder: Path) -> None:
    """Remove old drafts without a lock: a process locks its draft for as long as it lives."""
    now = time.monotonic()
    if now - _LOOKED.get(folder, -_YOUNG_SECONDS) < _YOUNG_SECONDS:
        return
    _LOOKED[folder] = now
    found: list[Path] = []
    with suppress(OSError):  # the folder may be writable without being readable
        found = [
            path
            for path in folder.iterdir()
            if (_DRAFT.fullmatch(path.name) if path.is_dir() else _PART.fullmatch(path.name))
        ]
    for path in found:
        with suppress(OSError), lock_abandoned(path) as handle:  # held, gone meanwhile, or not ours
            if time.time() - os.fstat(handle).st_mtime > _YOUNG_SECONDS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


LOCK: Final = ".publishing"
"""Lock file of a store, held while an artifact or a document is replaced."""

_TRIES: Final = 50


def unwritable(error: OSError, root: Path) -> ConfigurationError:
    """Build the error for a store that cannot be written."""
    return disk_error(error, root, "Set MENS_STORE_ROOT to a writable folder with free space.")


class Documents:
    """The documents of a store."""

    def __init__(self, root: Path, remote: "Remote | None" = None) -> None:
        """Use a folder, or `remote` if it is given; documents in the folder are then ignored."""
        self._root = root
        self._remote = remote

    def place(self, kind: str, name: str) -> str:
        """Return the path or URL of a document, for messages."""
        return str(self._root / kind / name) if self._remote is None else f"{self._remote.url}/{kind}/{name}"

    def read(self, kind: str, name: str) -> bytes:
        """Read a document; return no bytes if it does not exist."""
        if self._remote is not None:
            return self._remote.read(f"{kind}/{name}").content
        path = self._root / kind / name
        return path.read_bytes() if path.is_file() else b""

    def amend(self, kind: str, name: str, change: Callable[[bytes], bytes]) -> None:
        """Change a document atomically; call `change` again if another writer came first."""
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
        """Replace a document; raise `RefusedError` if it has changed since it was `seen`."""

        def change(found: bytes) -> bytes:
            if found != seen:
                place = self.place(kind, name)
                raise RefusedError(f"{place}: changed meanwhile, perhaps on another machine. Run the command again.")
            return content

        self.amend(kind, name, change)


def _swap(remote: "Remote", name: str, change: Callable[[bytes], bytes]) -> None:
    written = None
    for _ in range(_TRIES):
        found = remote.read(name)
        # A retried request fails if its own first try succeeded.
        if found.content == written:
            return
        written = change(found.content)
        if written == found.content or remote.swap(name, written, found.version):
            return
    raise ConfigurationError(f"{remote.url}/{name}: changed elsewhere {_TRIES} times in a row. Run the command again.")


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        with temporary.open("xb") as target:
            hold_draft(target.fileno(), path.parent)
            target.write(content)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
