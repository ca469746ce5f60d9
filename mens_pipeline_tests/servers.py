"""Ports for servers that tests start on this machine, and the wait until one listens."""

import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path


def free_ports(number: int) -> list[int]:
    """Return different ports that nobody listens on."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def wait_for_port(port: int, server: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """Wait until a server listens; fail with the end of its log if it ended or is late."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert server.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.05)
        else:
            return
