"""A simulated full disk."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_after(num_bytes: int) -> Iterator[None]:
    """Limit the size of files while the block runs; the system refuses to write more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
