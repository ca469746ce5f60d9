"""The files of a Vox workspace."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from mens_pipeline.errors import SourceNotFoundError

VOX_SUFFIXES: Final = (".vox", ".vox.ui")
PAGE_SUFFIXES: Final = (".md",)
_CACHE_TAG: Final = "CACHEDIR.TAG"
_SKIPPED_FOLDERS: Final = frozenset(("node_modules", "target", "__pycache__", "heldout_bench"))
"""Folders that are not entered: what builds leave behind, and benchmarks, whose solutions must never train."""


def vox_files(root: Path) -> Iterator[Path]:
    """The Vox programs below a folder, sorted, links and hidden, build or benchmark folders left out.

    Args:
        root: A folder, or a single file, which is taken whatever its name.

    Raises:
        SourceNotFoundError: There is nothing at `root`.
    """
    if not root.exists():
        raise SourceNotFoundError(f"{root}: no such file or folder. Name an existing one.")
    if root.is_file():
        yield root
    else:
        yield from (path for path in files_below(root, VOX_SUFFIXES) if not path.is_symlink())


def files_below(root: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """The files below a folder whose names end so, sorted folder by folder, links among them.

    Args:
        root: A folder; hidden folders, build folders, benchmarks (`heldout_bench`), linked folders and tagged caches
            (`CACHEDIR.TAG`) below it are not entered. A folder that cannot be listed is given itself, so that it is
            missed by whoever reads it.
        suffixes: Ends of names, with their dots.
    """
    unlisted: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=unlisted.append):
        if _CACHE_TAG in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(suffixes))
    yield from sorted(Path(str(error.filename)) for error in unlisted)


def tree_fingerprint(root: Path, files: Iterable[Path]) -> str:
    """A hash over the names and contents of files; of links and unreadable files only that they are such.

    Args:
        root: The folder their names are relative to.
        files: Files below it, in a fixed order.

    Returns:
        64 hexadecimal digits (SHA-256), the same on every machine.
    """
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(_content(path)).digest())
    return digest.hexdigest()


def _content(path: Path) -> bytes:
    if path.is_symlink():
        return b"a link"
    try:
        return path.read_bytes()
    except OSError as error:
        return f"unreadable: {error.errno}".encode()
