"""A Ray cluster of this machine alone, for tests."""

import gc
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from mens_pipeline.jobs.environment import own_environment
from mens_pipeline_tests.servers import free_ports, wait_for_port

_WORKER: Final = b"ray::RayTrainWorker"
_STARTED: Final = "Ray runtime started."
_PATIENCE_SECONDS: Final = 90.0
_TOKEN: Final = secrets.token_hex(16)
"""For every head that this process starts, as a process reads its token once. All processes that a head starts have
it in their environment."""


@dataclass(frozen=True, slots=True)
class RayHead:
    """A head that runs, and the variables by which a process finds it."""

    variables: dict[str, str]

    def workers(self) -> list[int]:
        """Ids of the live processes that train on it."""
        return self.find(_WORKER)

    def find(self, name: bytes) -> list[int]:
        """Return the ids of its live processes whose command begins with `name`."""
        return [number for number, command in _list_processes() if command.startswith(name)]


def _list_processes() -> list[tuple[int, bytes]]:
    """Ids and commands of the live processes of a head, including itself."""
    found = []
    for process in filter(lambda path: path.name.isdigit(), Path("/proc").iterdir()):
        try:
            if _TOKEN.encode() in (process / "environ").read_bytes():
                found.append((int(process.name), (process / "cmdline").read_bytes()))
        except OSError:
            continue
    return sorted(found)


def ray_head(num_others: int = 0, num_gpus: int = 0) -> Iterator[RayHead]:
    """Start a head with two CPUs, and other nodes with as many, on this machine; all end afterwards.

    `num_gpus` is the number that each node declares.
    """
    if find_spec("ray") is None:  # imported, it would look for its token too early
        pytest.skip("Ray is not installed; it comes with the extra `cluster`")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="mens-ray-"))  # short: sockets lie in it
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        port, dashboard, of_agent, of_grpc, *of_nodes = free_ports(4 + num_others)
        environment = {
            **own_environment(),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": _TOKEN,
            "RAY_JOB_STOP_WAIT_TIME_S": "60",
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{own_environment().get('PATH', '')}",
        }
        start = [
            str(Path(sys.executable).with_name("ray")),
            "start",
            "--block",
            "--num-cpus=2",
            f"--num-gpus={num_gpus}",
        ]
        start += ["--node-ip-address=127.0.0.1", "--object-store-memory=100000000"]
        command = [*start, "--head", f"--port={port}", f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1"]
        # The job agent has a default port, which another head may use.
        command += [f"--dashboard-agent-listen-port={of_agent}", f"--dashboard-agent-grpc-port={of_grpc}"]
        command += [f"--temp-dir={folder}"]
        log = stack.enter_context((folder / "head.log").open("wb"))
        head = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        nodes = [head]
        stack.callback(_end, nodes)
        for number in (port, dashboard):
            wait_for_port(number, head, folder / "head.log", _PATIENCE_SECONDS)
        for number in of_nodes:
            join = [*start, f"--address=127.0.0.1:{port}", f"--dashboard-agent-listen-port={number}"]
            nodes.append(subprocess.Popen(join, env=environment, stdout=log, stderr=log))
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (folder / "head.log").read_text().count(_STARTED) < len(nodes):
            assert time.monotonic() < deadline, (folder / "head.log").read_text()[-2000:]
            time.sleep(0.1)
        variables = {
            "RAY_ADDRESS": f"127.0.0.1:{port}",
            "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": _TOKEN,
        }
        yield RayHead(variables)
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # close sockets that Ray's client left open, or a later test is blamed for them


def _end(nodes: "list[subprocess.Popen[bytes]]") -> None:
    """Kill nodes and all processes that they started; a request to stop takes half a minute."""
    while started := _list_processes():
        for number, _ in started:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        for node in nodes:
            node.poll()
        time.sleep(0.1)
    for node in nodes:
        node.wait()
