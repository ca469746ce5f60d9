"""Measure time and memory of a part of the pipeline at some size, in a separate process."""

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
"""Name of a measurement -> seconds, or MB if the name ends in MB."""

PEAK: Final = "peak memory, MB"


def apart(measure: Callable[[Path, int], Measured], size: int) -> Measured:
    """Measure in a separate process, peak memory included."""
    with TemporaryDirectory() as folder:
        return in_own_process(measure, Path(folder), size)


def in_own_process(measure: Callable[..., Measured], *arguments: object) -> Measured:
    """Call an importable function in a new process, which may start others; add the peak memory to its result."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_with_peak, measure, *arguments).result()


def _with_peak(measure: Callable[..., Measured], *arguments: object) -> Measured:
    found = measure(*arguments)
    return {**found, PEAK: memory_mb("VmHWM")}


def memory_mb(name: str) -> float:
    """Return a value of `/proc/self/status` in MB: `VmHWM` the peak with mapped files, `RssAnon` private memory."""
    # Not `ru_maxrss`: a new process starts with the value of its parent.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"/proc/self/status: no {name}")


@contextmanager
def measure_time(found: Measured, what: str, times: int = 1) -> Iterator[range]:
    """Record the mean CPU time of the block's `times` repetitions, child processes included."""
    before = _seconds()
    yield range(times)
    found[what] = (_seconds() - before) / times


def _seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime
