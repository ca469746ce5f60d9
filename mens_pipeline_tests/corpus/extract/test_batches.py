"""Batches: results come in order, whichever process computes them."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import pytest

from mens_pipeline.corpus.extract.batches import Pool, in_batches, start_processes
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.waits import wait_until

_Item = tuple[int | None, str | None, int]

_SMALL = 10
"""Bytes of a batch."""


def _work(jobs: list[int]) -> list[str]:
    return [f"{job} in {os.getpid()}" for job in jobs]


def _refuse(jobs: list[int]) -> list[str]:
    raise ValueError(f"cannot work on {jobs}")


def _numbers(results: Iterator[str]) -> tuple[list[str], set[int]]:
    found = [result.split(" in ") for result in results]
    return [number for number, _ in found], {int(process) for _, process in found}


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_results_come_in_the_order_of_the_items(num_workers: int) -> None:
    for number in (50, 51):  # the last batch is full, or not
        items: list[_Item] = [(None, f"{n} in 0", 4) if n % 3 == 0 else (n, None, 4) for n in range(number)]
        numbers, _ = _numbers(in_batches(items, _work, Pool(num_workers), _SMALL))
        assert numbers == [str(n) for n in range(number)]


def test_other_processes_do_large_amounts_of_work() -> None:
    numbers, processes = _numbers(in_batches([(n, None, 10) for n in range(4)], _work, Pool(2), _SMALL))

    assert numbers == ["0", "1", "2", "3"]
    assert os.getpid() not in processes


@every_row(
    ([(n, None, 9) for n in range(1)], 2),
    ([(n, None, 10) for n in range(4)], 1),
    ([(1, None, 10), *((None, "0 in 0", 10) for _ in range(9))], 2),
)
def test_no_process_is_started_for_little(items: list[_Item], workers: int) -> None:
    """Starting one costs more than the work."""
    _, processes = _numbers(in_batches(items, _work, Pool(workers), _SMALL))

    assert processes <= {0, os.getpid()}


def test_items_are_read_lazily() -> None:
    read = []

    def items() -> Iterator[_Item]:
        for number in range(1000):
            read.append(number)
            yield number, None, 10

    results = in_batches(items(), _work, Pool(1), _SMALL)
    next(results)

    assert len(read) <= 4


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_error_in_a_batch_is_raised(num_workers: int) -> None:
    with pytest.raises(ValueError, match="cannot work on"):
        list(in_batches([(n, None, 10) for n in range(4)], _refuse, Pool(num_workers), _SMALL))


def _wait(jobs: list[int]) -> list[str]:
    time.sleep(60)
    return _work(jobs)


@pytest.fixture
def heed_interrupts() -> Iterator[None]:
    """Heed interrupts, as in a terminal; a shell has programs that it starts in the background ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heed_interrupts")
@pytest.mark.parametrize("number", [4, pytest.param(50, marks=pytest.mark.nightly)])
def test_an_interrupt_leaves_no_process(number: int) -> None:
    for place in range(number):

        def items(place: int = place) -> Iterator[_Item]:
            threading.Timer(place / number, os.kill, (os.getpid(), signal.SIGINT)).start()
            yield from ((n, None, 10) for n in range(4))

        with pytest.raises(KeyboardInterrupt):
            list(in_batches(items(), _wait, Pool(2), _SMALL))
        wait_until(lambda: not multiprocessing.active_children(), 20, f"interrupted at {place / number:.2f} s".format)


@pytest.mark.usefixtures("heed_interrupts")
def test_an_interrupt_waits_until_processes_have_started() -> None:
    started: list[Executor] = []

    def start(number: int) -> Executor:
        os.kill(os.getpid(), signal.SIGINT)
        started.append(start_processes(number))
        return started[0]

    with pytest.raises(KeyboardInterrupt):
        list(in_batches([(n, None, 10) for n in range(4)], _work, Pool(2, start), _SMALL))
    assert len(started) == 1


def test_a_thread_may_use_processes() -> None:
    found: list[str] = []
    items: list[_Item] = [(n, None, 10) for n in range(4)]
    thread = threading.Thread(target=lambda: found.extend(in_batches(items, _work, Pool(2), _SMALL)))
    thread.start()
    thread.join()

    assert len(found) == 4


def test_no_items_give_no_results() -> None:
    assert list(in_batches(iter(()), _work, Pool(2), _SMALL)) == []


def test_any_thread_may_close_unread_results() -> None:
    results: Any = in_batches([(n, None, 10) for n in range(12)], _work, Pool(2), _SMALL)
    next(results)
    wrong: list[BaseException] = []
    is_closed = threading.Event()

    def close(_: object) -> None:
        try:
            results.close()
        except RuntimeError as error:
            wrong.append(error)
        is_closed.set()

    results.gi_frame.f_locals["executor"].submit(time.sleep, 1).add_done_callback(close)

    assert is_closed.wait(30)
    assert wrong == []
