"""Metrics for Prometheus, and the log of requests."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mens_pipeline.serving.queue import GenerationQueue

METRICS: Final = "/metrics"
_OTHER: Final = "other"
_BUCKETS: Final = (0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)  # seconds


class Metrics:
    """Requests by path, status and seconds; completions, tokens and the queue. `registry` accepts more metrics."""

    def __init__(self, queue: GenerationQueue, paths: frozenset[str]) -> None:
        """Start from zero; paths outside `paths` share one series, so that clients cannot create more."""
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
        """Count a finished request; status 499 means that the client disconnected first."""
        self._seconds.labels(path if path in self._paths else _OTHER, str(status)).observe(seconds)

    def response(self) -> Response:
        """Format all metrics for a scraper."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


class _QueueCollector(Collector):
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
        yield GaugeMetricFamily("mens_completions_waiting", "Completions that wait for a slot.", num_waiting)
        yield GaugeMetricFamily("mens_completions_written", "Completions that are being written.", num_written)


CANDIDATE: Final = "X-Mens-Candidate"
"""Header with the verdict on a model that is served although it was not promoted."""

_LONGEST: Final = 100
_NOT_COMPLETED: Final = 499


class AccessLog:
    """Middleware that logs and counts each request, and adds the header of a candidate to each response."""

    def __init__(self, app: ASGIApp, log_line: Callable[[str], None], metrics: Metrics, candidate: str | None) -> None:
        self._app = app
        self._log_line = log_line
        self._metrics = metrics
        self._headers = () if candidate is None else ((CANDIDATE.lower().encode(), candidate.encode("ascii")),)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, then log path, status and seconds."""
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
            # The client chooses the path; escaped as ASCII it stays on one line.
            path = ascii(scope["path"])[1:-1][:_LONGEST]
            seconds = time.monotonic() - begun
            self._log_line(f"{scope['method']} {path} {status} in {seconds:.2f} s{'' if is_over else ', incomplete'}")
            self._metrics.note(scope["path"], status, seconds)
