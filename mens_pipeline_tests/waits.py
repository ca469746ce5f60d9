"""Wait for events in other threads and processes."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], seconds: float = 30, describe: Callable[[], str] = str) -> None:
    """Fail with a description after some seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.02)
