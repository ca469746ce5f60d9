"""Files that may have been laid out by a stranger: opened without waiting, and read no further than they should be."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path, *, follow: bool = True) -> BufferedReader:
    """Open a file for reading; a pipe or a device, which could keep a reader for ever, is refused instead.

    Args:
        path: The file.
        follow: Whether a link may stand in its place.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(path, flags)
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        code = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(code, os.strerror(code) if code == errno.EISDIR else "No regular file", str(path))
    return os.fdopen(handle, "rb")


def read_regular(path: Path, most: int, *, follow: bool = True) -> bytes:
    """Read the content of a regular file.

    Args:
        path: The file.
        most: Bytes that it may have.
        follow: Whether a link may stand in its place.

    Raises:
        OSError: It cannot be read, is no regular file, or is larger.
    """
    with open_regular(path, follow=follow) as content:
        data = content.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(path))
    return data
