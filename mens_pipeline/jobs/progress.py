"""Progress of a job: events as lines of a file in its folder, which its parent follows."""

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
"""Bytes read at once to find the last line."""
_QUIET_SECONDS: Final = 20.0


NOWHERE: Final = Path(os.devnull)
"""Log file of all ranks but the first: lines in it are discarded."""


class TelemetryLog:
    """The log of a job; each line is written immediately, so that it survives a crash."""

    def __init__(self, path: Path) -> None:
        """Open a log to append to; cut off the unfinished line of a job that died."""
        self._path = path
        if path.is_file():
            os.truncate(path, _end_of_whole_lines(path))

    def write(self, event: str, payload: dict[str, Any]) -> None:
        """Append an event, such as `train_start`, `step` or `completion`, with its fields in JSON types."""
        line = {"ts_ms": time.time_ns() // 1_000_000, "event": event, "payload": payload}
        with self._path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")


class Follower:
    """Reader of the log of a job that another process writes."""

    def __init__(self, path: Path, listen: Callable[[dict[str, Any]], None]) -> None:
        self._path = path
        self._listen = listen
        self._position = _end_of_whole_lines(path) if path.is_file() else 0

    def poll(self) -> None:
        """Pass each new complete event to `listen`."""
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
    """Call `poll` repeatedly in a thread while the block runs, and once more at its end.

    Errors, such as those of a restarting database, are logged, and the next call tries again.
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
            _LOG.exception("cannot read the progress of the job; retrying in %g s", seconds)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def log_wait(what: str, log_line: Callable[[str], None]) -> Iterator[None]:
    """Log the elapsed time every 20 seconds while the block runs, so that a wait does not look like a failure."""
    begin = time.monotonic()

    def log_seconds() -> None:
        if (seconds := time.monotonic() - begin) >= _QUIET_SECONDS:
            log_line(f"{what}: {seconds:.0f} s so far")

    with poll_in_thread(log_seconds, _QUIET_SECONDS):
        yield


def _end_of_whole_lines(path: Path) -> int:
    with path.open("rb") as log:
        start = log.seek(0, os.SEEK_END)
        while start:
            end, start = start, max(0, start - _BLOCK)
            log.seek(start)
            if found := log.read(end - start).rfind(b"\n") + 1:
                return start + found
    return 0
