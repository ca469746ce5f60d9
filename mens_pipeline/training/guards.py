"""Guards of a training process: it ends with its parent, and has its device for itself."""

import ctypes
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mens_pipeline.errors import RefusedError

_PR_SET_PDEATHSIG: Final = 1
_PARENT_GONE: Final = 75
_POLL_SECONDS: Final = 0.5
_LONGEST: Final = 500
"""Characters of what a lock says of its holder."""


def die_with_parent(parent: int) -> None:
    """Ask the system for SIGTERM when the parent ends, however it does; where it has, exit. Linux alone can."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(_PARENT_GONE)


@contextmanager
def exclusive(path: Path, wait_seconds: float, holder: str = "a run") -> Iterator[None]:
    """Hold a lock on a device for as long as the block runs; the system frees it when the process dies.

    Another holder may take `wait_seconds` to end; `holder` is what others are told of this one.

    Raises:
        RefusedError: Another process holds it; the message says which.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_seconds
    with path.open("a", encoding="utf-8") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    found = path.read_text(encoding="utf-8", errors="replace")[:_LONGEST] or "another process"
                    raise RefusedError(f"{path}: {found} holds this device. Wait for it to end, or stop it.") from None
                time.sleep(_POLL_SECONDS)
        handle.truncate(0)
        handle.write(f"process {os.getpid()} ({holder})")
        handle.flush()
        yield
