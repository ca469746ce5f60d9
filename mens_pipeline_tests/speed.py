"""CPU time against CPU time of one process: such limits hold on any machine, with coverage and beside other work."""

import gc
import time
from collections.abc import Callable
from typing import Final, TypeVar

Input = TypeVar("Input")

_SHRINK: Final = 16
_MOST_GROWTH: Final = 36
"""Linear work takes 16 times as long on 16 times as much, `n log n` about 20 times, quadratic work 256 times."""
_ATTEMPTS: Final = 6


def cpu_seconds(work: Callable[[], object]) -> float:
    """Measure the CPU time of this process for some work, in seconds, without garbage collection, as `timeit` does."""
    gc.disable()
    try:
        begin = time.process_time()
        work()
        return time.process_time() - begin
    finally:
        gc.enable()


def assert_linear(work: Callable[[Input], object], make: Callable[[int], Input], size: int) -> None:
    """Fail if the time of some work grows with the square of its input, or faster.

    The work runs on the whole size and on a sixteenth of it, so the machine may be twice as slow in between.
    """
    small, large = make(size // _SHRINK), make(size)
    assert_below(lambda: work(large), _MOST_GROWTH, lambda: work(small))


def assert_below(work: Callable[[], object], times: float, other: Callable[[], object]) -> None:
    """Fail if some work takes longer than a multiple of other work, each at its best of several attempts.

    The work is repeated only while it seems too slow.
    """
    seconds, allowed = float("inf"), float("inf")
    for _ in range(_ATTEMPTS):
        allowed = min(allowed, times * cpu_seconds(other))
        seconds = min(seconds, cpu_seconds(work))
        if seconds < allowed:
            return
    raise AssertionError(f"{seconds:.4f} s, {times:g} times other work would be {allowed:.4f} s")
