"""Seconds and memory of a part of the pipeline at some size, in a process of its own."""

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final

Measured = dict[str, float]
"""Name of a measurement -> seconds, or MB where the name ends in MB."""

PEAK: Final = "peak memory, MB"


def apart(measure: Callable[[Path, int], Measured], size: int) -> Measured:
    """Measure in a process of its own, and its peak memory with it."""
    with TemporaryDirectory() as folder:
        return in_own_process(measure, Path(folder), size)


def in_own_process(measure: Callable[..., Measured], *arguments: object) -> Measured:
    """Call an importable function in a new process, which may start others; add the peak memory to what it measured."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_with_peak, measure, *arguments).result()


def _with_peak(measure: Callable[..., Measured], *arguments: object) -> Measured:
    found = measure(*arguments)
    return {**found, PEAK: memory_mb("VmHWM")}


def memory_mb(name: str) -> float:
    """Megabytes by a name of `/proc/self/status`: `VmHWM` at most, with mapped files, `RssAnon` its own."""
    # Not `ru_maxrss`: a process begins with that of the one that started it.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"/proc/self/status: no {name}")


@contextmanager
def measure_time(found: Measured, what: str, times: int = 1) -> Iterator[range]:
    """Take the mean CPU time of what the block does so many times, child processes included."""
    before = _seconds()
    yield range(times)
    found[what] = (_seconds() - before) / times


def _seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime
