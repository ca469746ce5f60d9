"""Progress of a job: events as lines of a file in its folder, which its parent follows while they are written."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_LOG: Final = logging.getLogger(__name__)
_BLOCK: Final = 65_536
"""Bytes that are read at once when the end of a log is looked at."""


class TelemetryLog:
    """The log of a job; lines are written at once, so that those of a job that dies are there."""

    def __init__(self, path: Path) -> None:
        """Append to a log; the unfinished line of a job that died is cut off."""
        self._path = path
        if path.is_file():
            os.truncate(path, _end_of_whole_lines(path))

    def write(self, event: str, payload: dict[str, Any]) -> None:
        """Add an event, such as `train_start`, `step` or `completion`, with its fields in JSON types."""
        line = {"ts_ms": time.time_ns() // 1_000_000, "event": event, "payload": payload}
        with self._path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")


class SilentLog(TelemetryLog):
    """The log of a process that trains together with others, of which the first one logs."""

    def __init__(self) -> None:
        """Write nothing."""

    def write(self, event: str, payload: dict[str, Any]) -> None:
        """Leave it to the first process."""


class Follower:
    """Reads what is added to the log of a job while another process writes it."""

    def __init__(self, path: Path, listen: Callable[[dict[str, Any]], None]) -> None:
        """Begin behind the last whole line."""
        self._path = path
        self._listen = listen
        self._position = _end_of_whole_lines(path) if path.is_file() else 0

    def poll(self) -> None:
        """Pass on what was added; a line that is not whole waits."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as log:
            log.seek(self._position)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._position += len(line)
                self._listen(json.loads(line))


@contextmanager
def poll_in_thread(poll: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call something again and again in a thread of its own while the block runs, and once more at its end.

    What fails once, such as a look at a database that starts again, is logged and tried again the next time.
    """
    is_over = threading.Event()

    def follow() -> None:
        while not is_over.wait(seconds):
            poll_once()
        poll_once()

    def poll_once() -> None:
        try:
            poll()
        except Exception:  # noqa: BLE001 - whatever a database or a shared folder raises; it is logged
            _LOG.exception("progress could not be followed; it is looked at again in %g s", seconds)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _end_of_whole_lines(path: Path) -> int:
    """Return how many bytes the complete lines have; only what stands behind them is read."""
    with path.open("rb") as log:
        start = log.seek(0, os.SEEK_END)
        while start:
            end, start = start, max(0, start - _BLOCK)
            log.seek(start)
            if found := log.read(end - start).rfind(b"\n") + 1:
                return start + found
    return 0
