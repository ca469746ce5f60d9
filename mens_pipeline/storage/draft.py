"""Folders that are filled before they join a store, and the locks by which processes keep out of each other's way."""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

_DRAFT: Final = re.compile(r"\.draft-[^-]+-[0-9a-f]+")
_YOUNG_SECONDS: Final = 60.0
"""Age from which on a draft that nobody holds is one of a process that was killed."""
_LOOKED: Final[dict[Path, float]] = {}
"""When drafts were looked for in a folder, which takes longer the more it holds; none grows too old meanwhile."""


_TAG: Final = "CACHEDIR.TAG"
_TAG_TEXT: Final = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# Outputs of mens-pipeline; not a source of anything.\n"
)


def tag_as_cache(root: Path) -> None:
    """Let tools for backups pass a folder by.

    Raises:
        OSError: It cannot be written.
    """
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
        with suppress(OSError):  # on a file system without locks no draft is ever taken for abandoned
            fcntl.flock(handle, fcntl.LOCK_EX)
        _remove_abandoned(target.parent)
        yield path
    finally:
        os.close(handle)
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
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
    for path in filter(lambda path: _DRAFT.fullmatch(path.name), folder.iterdir()):
        with suppress(OSError):  # held, gone meanwhile, or not ours
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(handle).st_mtime > _YOUNG_SECONDS:
                    shutil.rmtree(path)
            finally:
                os.close(handle)
