"""The files of a Vox workspace."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from mens_pipeline.errors import SourceNotFoundError
from mens_pipeline.storage.files import open_regular

VOX_SUFFIXES: Final = (".vox", ".vox.ui")
PAGE_SUFFIXES: Final = (".md",)
_CACHE_TAG: Final = "CACHEDIR.TAG"
_SKIPPED_FOLDERS: Final = frozenset(("node_modules", "target", "__pycache__", "heldout_bench"))
"""Folders that are not entered: what builds leave behind, and benchmarks, whose solutions must never train."""


def vox_files(root: Path) -> Iterator[Path]:
    """Yield the Vox programs below a folder, sorted; links, pipes and hidden, build or benchmark folders left out.

    A single file is taken whatever its name.

    Raises:
        SourceNotFoundError: There is nothing at `root`.
    """
    if not root.exists():
        raise SourceNotFoundError(f"{root}: no such file or folder. Name an existing one.")
    if root.is_file():
        yield root
    else:
        yield from (path for path in files_below(root, VOX_SUFFIXES) if not is_out_of_place(path))


def files_below(root: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files below a folder whose names end so, sorted folder by folder, links among them.

    Hidden folders, build folders, benchmarks (`heldout_bench`), linked folders and tagged caches (`CACHEDIR.TAG`) are
    not entered. A folder that cannot be listed is given itself, so that it is missed by whoever reads it.
    """
    # One after the other, not one in the other: a tree may be deeper than Python can recurse.
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
        pending += (folder / name for name in below if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
    yield from sorted(unlisted)


def is_out_of_place(path: Path) -> bool:
    """Return whether something below a workspace is neither file nor folder: a link, a pipe, a device."""
    try:
        kind = path.lstat().st_mode
    except OSError:  # gone, or out of reach: whoever reads it says so
        return False
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)


def shown_name(path: Path, root: Path) -> str:
    """Return the path of a file relative to a folder, with forward slashes; bytes that are no UTF-8 as escapes."""
    return path.relative_to(root).as_posix().encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def tree_fingerprint(root: Path, files: Iterable[Path]) -> str:
    """Hash (SHA-256, hexadecimal) the names and contents of files; of links and unreadable ones that they are such.

    The files lie below `root`, in a fixed order.
    """
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode("utf-8", "surrogateescape") + b"\0")
        digest.update(_digest(path))
    return digest.hexdigest()


def _digest(path: Path) -> bytes:
    """Compute the SHA-256 of a file of any size, or of what stands for one that is not read."""
    if is_out_of_place(path):
        return hashlib.sha256(b"a link").digest()
    try:
        with open_regular(path, follow=False) as content:
            return hashlib.file_digest(content, "sha256").digest()
    except OSError as error:
        return hashlib.sha256(f"unreadable: {error.errno}".encode()).digest()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False
