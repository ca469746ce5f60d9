"""Bounded connections: headers must arrive in time, and silent connections make room for new ones."""

import asyncio
import errno
import resource
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_RESERVED_FILES: Final = 100  # file descriptors kept for weights, logs and other open files

_LEAST, _MOST = 16, 1_000
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SILENT_SECONDS: Final = 60.0
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n"


def most_connections() -> int:
    """Return the number of connections to accept at once, from the limit of open files of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(_LEAST, min(_MOST, soft - _RESERVED_FILES))


class BoundedConnection(H11Protocol):
    """A connection of uvicorn with a deadline for headers; if there are too many, a silent one is closed.

    `header_seconds` is the time from the first byte of a request (or from connecting) to the end of its headers. Up to
    `most` connections are open at once; None: the result of `most_connections`.
    """

    header_seconds: ClassVar[float] = 10.0
    most: ClassVar[int | None] = None

    _deadline: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; if there are too many, close the longest silent one, or else this one."""
        super().connection_made(transport)
        self._since = time.monotonic()
        if len(self.connections) > (self.most or most_connections()) and not self._make_room():
            transport.write(_BUSY)
            transport.close()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Parse the bytes, and update the deadline."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        self._forget_deadline()
        super().connection_lost(exc)

    @property
    def _awaits_headers(self) -> bool:
        return self.conn.their_state is h11.IDLE

    def _watch(self) -> None:
        if not self._awaits_headers:
            self._forget_deadline()
        elif self._deadline is None:
            self._since = time.monotonic()
            self._deadline = self.loop.call_later(self.header_seconds, self.transport.abort)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _make_room(self) -> bool:
        silent = [
            other
            for other in self.connections
            if isinstance(other, BoundedConnection) and other is not self and other._awaits_headers  # noqa: SLF001
        ]
        if not silent:
            return False
        oldest = min(silent, key=lambda other: other._since)  # noqa: SLF001 - its own kind
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True


def limit_error_log(log_line: Callable[[str], None]) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Build an error handler for an event loop that reports exhausted files or memory once a minute.

    The loop calls it for every failed attempt to accept, many times a second. Other errors are logged as usual.
    """
    silent_until = 0.0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal silent_until
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            loop.default_exception_handler(context)
        elif time.monotonic() >= silent_until:
            silent_until = time.monotonic() + _SILENT_SECONDS
            log_line(f"new connections are waiting: {error.strerror}. Raise the limit of open files (ulimit -n).")

    return handle
