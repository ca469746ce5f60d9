"""A Dagster server as `make ui` starts it, in separate folders, and its GraphQL requests."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.servers import free_ports

_START_SECONDS = 120
_REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "mens_pipeline"}
_LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""
_STATUS = "query Status($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
_TERMINATE = "mutation Stop($id: String!) { terminateRun(runId: $id) { __typename } }"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers, its first page and its `DAGSTER_HOME`; its process leads a group."""

    url: str
    process: "subprocess.Popen[bytes]"
    home: Path

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Send a GraphQL query, and return its data."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})  # noqa: S310 - our own server
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - likewise
            completion: dict[str, Any] = json.load(response)
        assert "errors" not in completion, completion["errors"]
        return dict(completion["data"])

    def launch(self, job: str, config: Mapping[str, Any] | None = None) -> str:
        """Launch a job as the page does, and return the id of its run."""
        params = {
            "selector": {**_REPOSITORY, "pipelineName": job},
            "runConfigData": json.dumps(config or {}),
            "mode": "default",
        }
        launched = self.ask(_LAUNCH, params=params)["launchRun"]
        assert "run" in launched, launched
        return str(launched["run"]["runId"])

    def status(self, run_id: str) -> str:
        """Return the status of a run: `STARTED`, `SUCCESS`, `FAILURE`, `CANCELED` and the like."""
        return str(self.ask(_STATUS, id=run_id)["runOrError"]["status"])

    def terminate(self, run_id: str) -> None:
        """Cancel a run as the button does."""
        assert self.ask(_TERMINATE, id=run_id)["terminateRun"]["__typename"] == "TerminateRunSuccess"

    def wait(self, run_id: str, seconds: float) -> str:
        """Wait for the end of a run, and return its status."""
        deadline = time.monotonic() + seconds
        while (status := self.status(run_id)) not in {"SUCCESS", "FAILURE", "CANCELED"}:
            assert time.monotonic() < deadline, f"run {run_id} is {status} after {seconds} s"
            time.sleep(1)
        return status


@contextmanager
def serving(folder: Path, environment: Mapping[str, str]) -> Iterator[Server]:
    """A server that ends with the block, with all its processes; its home, store and cache are in the folder."""
    home = folder / "home"
    home.mkdir()
    (home / "dagster.yaml").symlink_to(PROJECT_ROOT / "dagster.yaml")
    (port,) = free_ports(1)
    own = {
        "DAGSTER_HOME": str(home),
        "MENS_STORE_ROOT": str(folder / "store"),
        "MENS_CACHE_ROOT": str(folder / "cache"),
    }
    command = [sys.executable, "-m", "mens_pipeline.orchestration.web_server", "dev", "-w", "workspace.yaml"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--host", "127.0.0.1"],
            cwd=PROJECT_ROOT,
            env={"DAGSTER_DISABLE_TELEMETRY": "1", **environment, **own},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    server = Server(f"http://127.0.0.1:{port}", process, home)
    try:
        _wait_for(server, folder / "server.log")
        yield server
    finally:
        _end(process)


def _wait_for(server: Server, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            server.ask("query { version }")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert server.process.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(1)
        else:
            return


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()  # not SIGINT, which a shell ignores for background jobs
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)  # the rest of its session
    except ProcessLookupError:
        return
