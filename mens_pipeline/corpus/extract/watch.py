"""Fingerprint of a tree of files by names, sizes and times, without opening one."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mens_pipeline.corpus.extract.sources import files_below
from mens_pipeline.errors import RefusedError


@dataclass(frozen=True, slots=True)
class WatchedState:
    """A tree at one moment.

    `fingerprint` is the SHA-256 over path, size and modification time of every file, hexadecimal; `touched` is when the
    last of them was written, renamed or unpacked, in seconds since 1970; 0 without files.
    """

    fingerprint: str
    num_files: int
    touched: float

    def is_settled(self, now: float, seconds: float) -> bool:
        """Return whether a file has not changed for a while; a time in the future counts as long ago.

        `now` is in seconds since 1970.
        """
        return not now - seconds < self.touched <= now


def sight(
    root: Path, suffixes: tuple[str, ...], most: int, counts: Callable[[str], bool] = lambda _path: True
) -> WatchedState:
    """Look at a tree.

    Names that count end in `suffixes`; `counts` takes a path below the root with `/`.

    Raises:
        RefusedError: There are more files than that.
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
        digest.update(f"{status.st_size} {status.st_mtime_ns}\0".encode())
        # The time of the change of the inode: unlike that of the content, unpacking and renaming do not set it back.
        touched = max(touched, status.st_ctime)
    return WatchedState(digest.hexdigest(), num_files, touched)
