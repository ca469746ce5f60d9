"""Figures of a server in the text format of Prometheus."""

from collections.abc import Iterator
from typing import Final

from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mens_pipeline.delivery.serving.engine import Engine

PATH: Final = "/metrics"
_OTHER: Final = "other"
_BUCKETS: Final = (0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)
"""Seconds."""


class Metrics:
    """Requests by path and status with their seconds, completions and tokens, and what waits."""

    def __init__(self, engine: Engine, paths: frozenset[str]) -> None:
        """Count from zero.

        Only these paths are counted by their names: a client cannot make more series by asking for others.
        """
        self._paths = paths
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "mens_request_seconds",
            "Requests, from their first byte to the last of the response.",
            ("path", "status"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._registry.register(_EngineCollector(engine))

    def note(self, path: str, status: int, seconds: float) -> None:
        """Count a request that is over; its status is 499 where the client went away first."""
        self._seconds.labels(path if path in self._paths else _OTHER, str(status)).observe(seconds)

    def response(self) -> Response:
        """Return all figures as a scraper wants them."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


class _EngineCollector(Collector):
    """Reads the counts of an engine when they are asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        totals = self._engine.totals
        tokens = CounterMetricFamily("mens_tokens", "Tokens of prompts read and of completions written.", labels=["of"])
        tokens.add_metric(["prompt"], totals.prompt_tokens)
        tokens.add_metric(["completion"], totals.completion_tokens)
        yield tokens
        ended = CounterMetricFamily("mens_completions", "Completions that ended.", labels=["decoding", "reason"])
        for (decoding, reason), number in sorted(totals.ended.copy().items()):
            ended.add_metric([decoding, reason], number)
        yield ended
        num_waiting, num_written = self._engine.queue()
        yield GaugeMetricFamily("mens_completions_waiting", "Completions that wait for a place.", num_waiting)
        yield GaugeMetricFamily("mens_completions_written", "Completions that are being written.", num_written)
