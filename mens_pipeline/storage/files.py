"""Files that strangers may have written: regular, bounded, and whether a disk is full."""

import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

MAX_LINE_BYTES: Final = 1_048_576
"""Of a row; a longer line is none."""

_CHUNK: Final = 65_536

_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))


def open_regular(path: Path, *, follow: bool = True) -> BufferedReader:
    """Open a file for reading; refuse (`OSError`) a pipe or a device, which could keep a reader for ever."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(path, flags)
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        code = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(code, os.strerror(code) if code == errno.EISDIR else "No regular file", str(path))
    return os.fdopen(handle, "rb")


def read_regular(path: Path, most: int, *, follow: bool = True) -> bytes:
    """Read the content of a regular file; refuse (`OSError`) one of more bytes than `most`."""
    with open_regular(path, follow=follow) as content:
        data = content.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(path))
    return data


def bounded_lines(content: BinaryIO, most: int) -> Iterator[bytes]:
    """Yield lines in bounded memory; of one longer than `most` bytes, its end included, come `most + 1`."""
    return (line for _, line in placed_lines(content, most))


def placed_lines(content: BinaryIO, most: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines as `bounded_lines` does, each with the byte at which it begins."""
    offset = 0
    while line := content.readline(most + 1):
        yield offset, line
        offset += len(line)
        rest = line if len(line) > most else b"\n"
        while rest and not rest.endswith(b"\n"):
            rest = content.readline(_CHUNK)
            offset += len(rest)


def is_full(error: OSError) -> bool:
    """Return whether the disk, a quota or a bound on the size of files is used up.

    `EFBIG` counts where it names no file, which is one that was open: a reader of ours raises it with the name of a
    file that is too large to be read.
    """
    return error.errno in _NO_ROOM or (error.errno == errno.EFBIG and error.filename is None)


def is_out_of_place(path: Path) -> bool:
    """Return whether something in a folder is neither file nor folder: a link, a pipe, a device."""
    try:
        kind = path.lstat().st_mode
    except OSError:  # gone, or out of reach: its reader says so
        return False
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)
