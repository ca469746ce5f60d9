"""A real server on a free port, in a thread of the tests."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from mens_pipeline.corpus.telemetry.accepted import AcceptedPieces
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.adapter import MANIFEST, Adapter
from mens_pipeline.serving.access import LOCAL_NAMES, Access
from mens_pipeline.serving.completions import Defaults
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline.serving.served_model import ServedModel, adapter_model, merged_model
from mens_pipeline.serving.server import ModelServer, resolve_address

TOKEN: Final = "a secret of the tests"  # noqa: S105 - of a server that lives as long as the tests
CPU: Final = Device("cpu", "tests", None, has_bfloat16=False)
CLIENTS: Final = ExitStack()
"""Closes OpenAI's clients at the end of a test: the warning about an open connection would hit a later one."""
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    """A running server, its model, and the lines that it has logged so far."""

    url: str
    served: ServedModel
    lines: list[str] = field(default_factory=list)
    token: str | None = None

    def openai(self, **options: Any) -> OpenAI:
        """OpenAI's own client, without retries."""
        plain = {"base_url": f"{self.url}/v1", "api_key": self.token or "none", "max_retries": 0}
        client = OpenAI(**{**plain, **options})
        CLIENTS.callback(client.close)
        return client

    def http(self, **options: Any) -> httpx2.Client:
        """A plain HTTP client with the token, for a `with` block."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return httpx2.Client(**{"base_url": self.url, "headers": headers, "timeout": 60, **options})

    def post(self, path: str, **fields: Any) -> httpx2.Response:
        """Send a JSON object."""
        with self.http() as client:
            return client.post(path, json=fields)

    def events(self, path: str, **fields: Any) -> list[dict[str, Any]]:
        """The objects of a stream of events, or of lines."""
        reply = self.post(path, **fields)
        assert reply.status_code == 200, reply.text
        lines = (line.removeprefix("data: ") for line in reply.text.splitlines())
        return [json.loads(line) for line in lines if line.startswith("{")]

    def connect(self) -> socket.socket:
        """A connection that has sent nothing."""
        host, port = self.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), timeout=10)

    def figures(self) -> dict[str, float]:
        """Metrics by name and values of labels: `mens_tokens_total prompt`."""
        with self.http() as client:
            families = text_string_to_metric_families(client.get("/metrics").text)
        samples = (sample for family in families for sample in family.samples)
        return {" ".join((sample.name, *sample.labels.values())): sample.value for sample in samples}


@contextmanager
def running(  # noqa: PLR0913 - the options of a server
    folder: Path | ServedModel,
    limits: ServerLimits,
    token: str | None = None,
    syntax: Syntax = Syntax.FREE,
    best_of: int = 1,
    *,
    show_all: bool = False,
    accepted: AcceptedPieces | None = None,
    access: Access | None = None,
) -> Iterator[Running]:
    """Run a server that is ready, and ends with the block.

    `folder` is a merged model, a run, or a served model; `access` replaces the token and the local names.
    """
    if isinstance(folder, ServedModel):
        served = folder
    else:
        served = (
            adapter_model(Adapter.open(folder), CPU) if (folder / MANIFEST).is_file() else merged_model(folder, CPU)
        )
    lines: list[str] = []
    access = access or Access(SecretStr(token) if token else None, LOCAL_NAMES)
    defaults = Defaults(syntax, best_of, show_all)
    server = ModelServer(served, resolve_address("127.0.0.1", 0), access, limits, defaults, lines.append, accepted)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + _START_SECONDS
        while thread.is_alive() and not any(line.startswith("ready: ") for line in lines):
            assert time.monotonic() < deadline, lines
            time.sleep(0.02)
        yield Running(server.url, served, lines, token)
    finally:
        server.stop()
        thread.join(_STOP_SECONDS)
        assert not thread.is_alive()
