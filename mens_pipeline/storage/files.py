"""Bounded reads of untrusted files, copies of folders, and errors of full disks."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from mens_pipeline.errors import ConfigurationError, DiskError

MAX_LINE_BYTES: Final = 1_048_576
"""A longer line is not a row."""

_CHUNK: Final = 65_536


def open_regular(path: Path, *, below: Path | None = None) -> BufferedReader:
    """Open a file for reading; raise `OSError` for a pipe or a device, which could block forever.

    Also raise it if any part of `path` below the folder `below` is a link, even one that was created this moment.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    handle = os.open(path, flags) if below is None else _open_below(below, path, flags | os.O_NOFOLLOW)
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        code = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(code, os.strerror(code) if code == errno.EISDIR else "Not a regular file", str(path))
    return os.fdopen(handle, "rb")


def _open_below(root: Path, path: Path, flags: int) -> int:
    *folders, name = path.relative_to(root).parts or (".",)
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        return os.open(name, flags, dir_fd=handle)
    finally:
        os.close(handle)


def read_regular(path: Path, most: int, *, below: Path | None = None) -> bytes:
    """Read a regular file, as `open_regular` opens it; raise `OSError` if it has more than `most` bytes."""
    with open_regular(path, below=below) as content:
        data = content.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(path))
    return data


def bounded_lines(content: BinaryIO, most: int) -> Iterator[bytes]:
    """Yield lines in bounded memory; cut lines longer than `most` bytes, newline included, to `most + 1`."""
    return (line for _, line in placed_lines(content, most))


def placed_lines(content: BinaryIO, most: int) -> Iterator[tuple[int, bytes]]:
    """Yield lines as `bounded_lines` does, each with its byte offset."""
    offset = 0
    while line := content.readline(most + 1):
        yield offset, line
        offset += len(line)
        rest = line if len(line) > most else b"\n"
        while rest and not rest.endswith(b"\n"):
            rest = content.readline(_CHUNK)
            offset += len(rest)


def is_full(error: OSError) -> bool:
    """Return whether a disk, a quota or a limit on file sizes is exhausted.

    `EFBIG` with the name of one file comes from `read_regular` and says that the file is too large to read.
    """
    is_read = error.filename is not None and error.filename2 is None
    return error.errno in {errno.ENOSPC, errno.EDQUOT} or (error.errno == errno.EFBIG and not is_read)


_LITTLE_SHARE: Final = 0.1
_LITTLE_BYTES: Final = 5_000_000_000


def find_little_room(*places: Path) -> str | None:
    """Return a warning about the first disk with less than 10 % and less than 5 GB free."""
    for place in places:
        there = next((path for path in (place, *place.parents) if path.exists()), Path())
        total, _, free = shutil.disk_usage(there)
        if free < min(_LITTLE_SHARE * total, _LITTLE_BYTES):
            advice = "Make room: `mens store prune` lists artifacts that can be removed."
            return f"{place}: {free / 1e9:.1f} GB of {total / 1e9:.1f} GB are free. {advice}"
    return None


def disk_error(error: OSError, place: object, advice: str, *, is_named: bool = False) -> ConfigurationError:
    """Build the error for a place that cannot be written: a `DiskError` if the disk is full or read-only.

    The message names the file that failed, or the place itself if it `is_named` by the user.
    """
    kind = DiskError if is_full(error) or error.errno == errno.EROFS else ConfigurationError
    found = place if is_named else error.filename2 or error.filename or place
    return kind(f"{found}: {error.strerror}. {advice}")


@contextmanager
def named_errors(place: Path) -> Iterator[None]:
    """Make each `OSError` of the block name a file; errors of writes, locks, times and `fsync` do not."""
    try:
        yield
    except OSError as error:
        error.filename2 = error.filename2 or (None if error.filename else str(place))
        raise


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder, links as links, into a folder that may exist.

    Unlike `shutil.copytree`, raise the first error unchanged, with its number.
    """
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.is_dir() and not path.is_symlink():
            copy_folder(path, target / path.name)
        else:
            shutil.copy2(path, target / path.name, follow_symlinks=False)


def is_out_of_place(path: Path) -> bool:
    """Return whether a path is neither a file nor a folder: a link, a pipe or a device."""
    try:
        kind = path.lstat().st_mode
    except OSError:  # gone or unreadable: its reader will say so
        return False
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)
