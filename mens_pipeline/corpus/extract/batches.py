"""Process many files in parallel, with results in order and bounded memory."""

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from threading import current_thread, main_thread
from typing import Any, Final, Generic, TypeVar

BATCH_BYTES: Final = 512 * 1024
"""Bytes of work in a batch: half a second for a process, and little memory."""

Job = TypeVar("Job")
Result = TypeVar("Result")


def start_processes(number: int) -> Executor:
    """Start a pool of processes on this machine."""
    # A forked copy of a process with threads may hang.
    return ProcessPoolExecutor(number, mp_context=get_context("spawn"))


@dataclass(frozen=True, slots=True)
class Pool:
    """Runs batches in `size` processes from `start`; a size of 1 runs them in this process."""

    size: int
    start: Callable[[int], Executor] = start_processes


ONE_PROCESS: Final = Pool(1)


@dataclass
class _Batch(Generic[Job, Result]):
    items: list[Result | None] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    future: Future[list[Result]] | None = None

    def results(self, work: Callable[[list[Job]], list[Result]]) -> Iterator[Result]:
        done = iter(self.future.result() if self.future is not None else work(self.jobs))
        return (next(done) if item is None else item for item in self.items)


def in_batches(
    items: Iterable[tuple[Job | None, Result | None, int]],
    work: Callable[[list[Job]], list[Result]],
    pool: Pool,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[Result]:
    """Yield results in the order of the items; only a few batches are in memory.

    An item is a job or a known result, and its size in bytes. `work` returns the results of jobs in order; with several
    processes it must be importable by name. Processes start only when there is work for more than one batch.
    """
    waiting: deque[_Batch[Job, Result]] = deque()
    with ExitStack() as stack:
        executor: Executor | None = None
        for batch in _batches(items, batch_bytes):
            waiting.append(batch)
            busy = [waited for waited in waiting if waited.jobs and waited.future is None]
            with _hold_signals():
                if executor is None and pool.size > 1 and len(busy) > 1:
                    executor = pool.start(pool.size)
                    stack.push(partial(_end, executor))
                if executor is not None:
                    for waited in busy:
                        waited.future = executor.submit(work, waited.jobs)
            while len(waiting) > 2 * pool.size:
                yield from waiting.popleft().results(work)
        while waiting:
            yield from waiting.popleft().results(work)


@contextmanager
def _hold_signals() -> Iterator[None]:
    """Hold back signals while processes start; an interrupt would leave processes that wait for work forever."""
    if current_thread() is not main_thread():  # only the main thread is interrupted
        yield
        return
    held: list[int] = []
    with ExitStack() as stack:  # restores all handlers, even when one of them raises meanwhile
        stack.callback(list, map(signal.raise_signal, held))
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, lambda number, _: held.append(number)))
        yield


def _end(pool: Executor, kind: type[BaseException] | None, *_: object) -> None:
    """End a pool; after an error, kill its processes without waiting, since its own thread may run this cleanup."""
    processes: dict[int, Any] = getattr(pool, "_processes", None) or {}
    for process in [*processes.values()] if kind is not None else ():
        process.kill()
    pool.shutdown(wait=kind is None, cancel_futures=True)


def _batches(items: Iterable[tuple[Job | None, Result | None, int]], batch_bytes: int) -> Iterator[_Batch[Job, Result]]:
    batch: _Batch[Job, Result] = _Batch()
    size = 0
    for job, result, num_bytes in items:
        batch.items.append(result)
        if job is not None:
            batch.jobs.append(job)
        size += num_bytes
        if size >= batch_bytes:
            yield batch
            batch, size = _Batch(), 0
    if batch.items:
        yield batch
