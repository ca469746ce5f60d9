"""Limits in front of the application: bounded connections, access control, and a log and figures of requests."""

import asyncio
import errno
import hashlib
import hmac
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import h11
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from mens_pipeline.serving.http import RequestRefusedError
from mens_pipeline.serving.queue import GenerationQueue

_RESERVED_FILES: Final = 100
"""Of those that the system allows, kept for weights, logs and whatever else is open."""

_LEAST, _MOST = 16, 1_000
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SILENT_SECONDS: Final = 60.0
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n"


def most_connections() -> int:
    """Return how many connections a server accepts at once, by the file descriptors that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(_LEAST, min(_MOST, soft - _RESERVED_FILES))


class BoundedConnection(H11Protocol):
    """A connection of uvicorn that must send its headers in time; silent ones are closed when there are too many."""

    header_seconds: ClassVar[float] = 10.0
    """From the first byte of a request, or from the beginning, to the end of its headers."""

    most: ClassVar[int | None] = None
    """Connections at once; None for what the system allows."""

    _deadline: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; when there are too many, the one that has kept silent longest is closed for it."""
        super().connection_made(transport)
        self._since = time.monotonic()
        if len(self.connections) > (self.most or most_connections()) and not self._make_room():
            transport.write(_BUSY)
            transport.close()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take what was sent."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock of a connection that has ended."""
        self._forget_deadline()
        super().connection_lost(exc)

    @property
    def _awaits_headers(self) -> bool:
        return self.conn.their_state is h11.IDLE

    def _watch(self) -> None:
        """Begin to wait for the end of headers, or end it; more bytes do not prolong it."""
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
    """Make an error handler for an event loop that logs at most once a minute that no connection can be accepted.

    The loop calls it for every attempt, thousands of times a second; other errors are logged as usual.
    """
    silent_until = 0.0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal silent_until
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED:
            loop.default_exception_handler(context)
        elif time.monotonic() >= silent_until:
            silent_until = time.monotonic() + _SILENT_SECONDS
            log_line(f"connections wait: {error.strerror}. Allow this process more open files (ulimit -n).")

    return handle


LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS: Final = frozenset({"/", "/health", "/ready"})
"""What needs no token: the page, which asks for it, and what those ask for who look after a server."""


@dataclass(frozen=True, slots=True)
class Access:
    """Host names and token that requests must give; None asks for none, and takes any."""

    token: SecretStr | None
    host_names: frozenset[str] | None


_USUAL_PORTS: Final = frozenset({80, 443})
"""Which of the two a page is of, who calls a proxy in front of this server does not say."""


class AccessControl:
    """Middleware that refuses requests without the right host name, origin or token."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is not allowed with its error, and pass on all others."""
        if scope["type"] == "http":
            try:
                check_access(Headers(scope=scope), scope["path"], self._access)
            except RequestRefusedError as refusal:
                await refusal.response(scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)


def check_access(headers: Mapping[str, str], path: str, access: Access) -> None:
    """Check host, origin and token of a request.

    Raises:
        RequestRefusedError: One of them is wrong.
    """
    called = headers.get("host", "")
    host, port = _place_of(f"//{called}")
    if access.host_names is not None and host not in access.host_names:
        # A page may have its own name lead here (DNS rebinding); its requests then carry that name.
        message = f"The host `{called[:100]}` is not this machine. Ask for http://localhost."
        raise RequestRefusedError(403, message, code="host_not_allowed")
    origin = headers.get("origin")
    if origin is not None and (host is None or _place_of(origin) != (host, port)):
        message = f"Pages of `{origin[:100]}` may not ask. Ask from a program."
        raise RequestRefusedError(403, message, code="origin_not_allowed")
    if access.token is not None and path not in OPEN_PATHS and not _is_token(headers, access.token):
        message = "The token is missing or wrong. Send it as `Authorization: Bearer TOKEN`."
        raise RequestRefusedError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _place_of(url: str) -> tuple[str | None, int | None]:
    """Return host name and port of a URL, the port None where it is the usual one of the web; no name for a bad one."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None, None
    return parts.hostname if parts.username is None else None, None if port in _USUAL_PORTS else port


def _is_token(headers: Mapping[str, str], token: SecretStr) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    # Hashes are of one length, and compared in one time.
    pair = (hashlib.sha256(text.encode()).digest() for text in (given.strip(), token.get_secret_value()))
    return hmac.compare_digest(*pair) and scheme.lower() == "bearer"


METRICS: Final = "/metrics"
_OTHER: Final = "other"
_BUCKETS: Final = (0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)
"""Seconds."""


class Metrics:
    """Requests by path and status with their seconds, completions and tokens, and what waits.

    Others may add figures to `registry`.
    """

    def __init__(self, queue: GenerationQueue, paths: frozenset[str]) -> None:
        """Count from zero.

        Only these paths are counted by their names: a client cannot make more series by asking for others.
        """
        self._paths = paths
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "mens_request_seconds",
            "Requests, from their first byte to the last of the response.",
            ("path", "status"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.registry.register(_QueueCollector(queue))

    def note(self, path: str, status: int, seconds: float) -> None:
        """Count a request that is over; its status is 499 where the client went away first."""
        self._seconds.labels(path if path in self._paths else _OTHER, str(status)).observe(seconds)

    def response(self) -> Response:
        """Return all figures as a scraper wants them."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


class _QueueCollector(Collector):
    """Reads the counts of a queue whenever figures are collected."""

    def __init__(self, queue: GenerationQueue) -> None:
        self._queue = queue

    def collect(self) -> Iterator[Metric]:
        totals = self._queue.totals
        tokens = CounterMetricFamily("mens_tokens", "Tokens of prompts read and of completions written.", labels=["of"])
        tokens.add_metric(["prompt"], totals.prompt_tokens)
        tokens.add_metric(["completion"], totals.completion_tokens)
        tokens.add_metric(["computed"], totals.computed_tokens)
        yield tokens
        ended = CounterMetricFamily("mens_completions", "Completions that ended.", labels=["decoding", "reason"])
        for (decoding, reason), number in sorted(totals.ended.copy().items()):
            ended.add_metric([decoding, reason], number)
        yield ended
        num_waiting, num_written = self._queue.count()
        yield GaugeMetricFamily("mens_completions_waiting", "Completions that wait for a place.", num_waiting)
        yield GaugeMetricFamily("mens_completions_written", "Completions that are being written.", num_written)


CANDIDATE: Final = "X-Mens-Candidate"
"""The header that says what the gate said of a model that is served although it was not promoted."""

_LONGEST: Final = 100
_NOT_COMPLETED: Final = 499


class AccessLog:
    """Middleware that logs each request, and adds the header of a candidate to each response."""

    def __init__(self, app: ASGIApp, log_line: Callable[[str], None], metrics: Metrics, candidate: str | None) -> None:
        self._app = app
        self._log_line = log_line
        self._metrics = metrics
        self._headers = () if candidate is None else ((CANDIDATE.lower().encode(), candidate.encode("ascii")),)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and say how it went."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, is_over = time.monotonic(), _NOT_COMPLETED, False

        async def send_noting(message: Message) -> None:
            nonlocal status, is_over
            is_start = message["type"] == "http.response.start"
            if is_start:
                message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
            await send(message)
            if is_start:
                status = message["status"]
            elif message["type"] == "http.response.body":
                is_over = not message.get("more_body", False)

        try:
            await self._app(scope, receive, send_noting)
        finally:
            # A path is whatever a client likes; as ASCII it stays on its line.
            path = ascii(scope["path"])[1:-1][:_LONGEST]
            end = "" if is_over else ", not to its end"
            seconds = time.monotonic() - begun
            self._log_line(f"{scope['method']} {path} {status} in {seconds:.2f} s{end}")
            self._metrics.note(scope["path"], status, seconds)
