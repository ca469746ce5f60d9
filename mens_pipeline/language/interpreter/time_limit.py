"""Wall time: what counting steps cannot bound, such as one search by a regular expression (R6)."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from mens_pipeline.language.interpreter.machine import Machine


@contextmanager
def time_limit(machine: Machine, seconds: float) -> Iterator[None]:
    """Let the time of a test expire by a signal; without effect outside the main thread, which gets none.

    Raises:
        VoxError: The time is over.
    """
    if current_thread() is not main_thread():
        yield
        return

    def expire(_number: int, _frame: FrameType | None) -> None:
        machine.expire(seconds)

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
