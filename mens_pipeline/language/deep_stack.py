"""More recursion for parses that need it, without harm to other threads.

Python's recursion limit belongs to the whole process. A thread that is deeper than a limit that another thread lowers
dies with the interpreter (CPython 3.11), so the limit goes back only when no parse is under way.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class DeepStack:
    """The recursion limit, raised on demand and given back when the last parse has ended."""

    def __init__(self, extra_frames: int) -> None:
        """Remember how much may be needed.

        Args:
            extra_frames: Python calls that a parse may nest beyond those of its caller.
        """
        self._extra_frames = extra_frames
        self._lock = Lock()
        self._num_parses = 0
        self._usual_limit: int | None = None

    @contextmanager
    def parse(self) -> Iterator[None]:
        """Mark a parse as under way; the recursion limit is given back when the last one has ended."""
        with self._lock:
            self._num_parses += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_parses -= 1
                if self._num_parses == 0:
                    self._give_back()

    def deepen(self) -> None:
        """Raise the limit for the parses under way."""
        with self._lock:
            if self._usual_limit is None:
                self._usual_limit = sys.getrecursionlimit()
                sys.setrecursionlimit(self._usual_limit + self._extra_frames)

    def _give_back(self) -> None:
        if self._usual_limit is None:
            return
        try:
            sys.setrecursionlimit(self._usual_limit)
        except RecursionError:
            return  # this caller itself lives beyond the usual limit by now: a later parse gives it back
        self._usual_limit = None
