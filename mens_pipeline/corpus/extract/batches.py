"""Work on many files in several processes: results in order, in bounded memory, whatever the number of workers."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import ClassVar, Final, Generic, TypeVar

BATCH_BYTES: Final = 512 * 1024
"""How much a process is handed at once: half a second of work, and little to keep in memory."""

Job = TypeVar("Job")
Result = TypeVar("Result")


def _new_local_pool(workers: int) -> Executor:
    # A forked copy of a process with threads may hang.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


class Pools:
    """Makes the process pools for batches: on this machine, or, once `jobs.cluster` is used, on nodes of a cluster.

    Attributes:
        new: Makes a pool of so many processes.
        at_once: Processes of every pool in place of the number that is asked for.
    """

    new: ClassVar[Callable[[int], Executor]] = staticmethod(_new_local_pool)
    at_once: ClassVar[int | None] = None


@dataclass
class _Batch(Generic[Job, Result]):
    """Some items in order: results that are there already, and jobs."""

    items: list[Result | None] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    future: Future[list[Result]] | None = None

    def results(self, work: Callable[[list[Job]], list[Result]]) -> Iterator[Result]:
        done = iter(self.future.result() if self.future is not None else work(self.jobs))
        return (next(done) if item is None else item for item in self.items)


def in_batches(
    items: Iterable[tuple[Job | None, Result | None, int]],
    work: Callable[[list[Job]], list[Result]],
    workers: int,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[Result]:
    """Yield results in the order of the items; at most a few batches are in memory.

    An item is a job, or a result that is there already, and its size in bytes. `work` gives the results of jobs in
    order; with several `workers` it is importable by name, and one worker is this process. Other processes are started
    only when there is work for more than one batch.
    """
    waiting: deque[_Batch[Job, Result]] = deque()
    workers = Pools.at_once or workers
    with ExitStack() as stack:
        pool: Executor | None = None
        for batch in _batches(items, batch_bytes):
            waiting.append(batch)
            busy = [waited for waited in waiting if waited.jobs and waited.future is None]
            if pool is None and workers > 1 and len(busy) > 1:
                pool = Pools.new(workers)
                stack.push(partial(_end, pool))
            if pool is not None:
                for waited in busy:
                    waited.future = pool.submit(work, waited.jobs)
            while len(waiting) > 2 * workers:
                yield from waiting.popleft().results(work)
        while waiting:
            yield from waiting.popleft().results(work)


def _end(pool: Executor, kind: type[BaseException] | None, *_: object) -> None:
    """End a pool; without waiting where not all was done, as then the pool's own thread may be what cleans up."""
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
