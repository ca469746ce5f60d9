"""The web server of the pages of verdicts."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any

import pytest

from mens_pipeline.promotion.receipt import PAGE, RECEIPT
from mens_pipeline.serving.pages import ADDRESS, PageServer, open_socket
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import MANIFEST, Artifact, ArtifactStore
from mens_pipeline.storage.validation import FORMAT_VERSION
from mens_pipeline_tests.every import every

_COMMAND = [sys.executable, "-m", "mens_pipeline.cli", "store", "pages"]


@pytest.fixture
def gate(tmp_path: Path) -> Artifact:
    """A verdict with its page, in a store."""

    def write(folder: Path) -> dict[str, str]:
        (folder / PAGE).write_text("<title>Refused: adapter 0123</title><p>a verdict</p>")
        (folder / RECEIPT).write_text("{}")
        return {}

    return ArtifactStore(tmp_path / "店").build(Kind.BENCHMARK_GATE, {}, write)[0]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Start a server of the store and yield its address."""
    with PageServer(open_socket(0), ArtifactStore(tmp_path / "店")) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        yield server.server_port
        server.shutdown()


def _get(
    port: int, path: str, headers: Mapping[str, str] = MappingProxyType({}), method: str = "GET"
) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(ADDRESS, port, timeout=30)) as connection:
        connection.request(method, path, headers=dict(headers))
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


def test_a_page_or_its_error_is_shown(gate: Artifact, port: int) -> None:
    place, manifest = f"/{Kind.BENCHMARK_GATE}/{gate.key}/{PAGE}", gate.path / "manifest.json"
    assert _get(port, place) == (200, "<title>Refused: adapter 0123</title><p>a verdict</p>")
    manifest.write_text(manifest.read_text().replace('"format_version": 1', '"format_version": 9'))
    status, text = _get(port, place)
    assert (status, f"店/{Kind.BENCHMARK_GATE}" in text) == (502, True)


def test_lists_pages_with_links_that_stay_valid(gate: Artifact, port: int, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "店")

    def write(folder: Path) -> dict[str, str]:
        (folder / PAGE).write_text("<title>Promoted: adapter 4567</title>")
        os.utime(folder / PAGE, (10, 10))
        return {}

    before = _get(port, "/")[1]
    old = store.build(Kind.BENCHMARK_GATE, {"of": "old"}, write)[0]
    champion = store.build(Kind.PROMOTED_ADAPTER, {}, write)[0]
    listed, of_gate = _get(port, "/"), _get(port, f"/{Kind.BENCHMARK_GATE}/")
    links = re.findall('href="([^"]*)">([^<]*)<', listed[1])

    assert links == [
        (f"/{Kind.BENCHMARK_GATE}/{gate.key}/{PAGE}", "Refused: adapter 0123"),
        (f"/{Kind.BENCHMARK_GATE}/{old.key}/{PAGE}", "Promoted: adapter 4567"),
        (f"/{Kind.PROMOTED_ADAPTER}/{champion.key}/{PAGE}", "Promoted: adapter 4567"),
    ]
    assert [_get(port, link)[0] for link, _ in links] == [200, 200, 200]
    assert "None yet." in before
    assert Kind.PROMOTED_ADAPTER not in of_gate[1]


@every(
    "path",
    [
        "/{kind}",
        "/eval_results/",
        "/{kind}/{key}/gate_receipt.json",
        "/{kind}/{key}/../{key}/report.html",
        "/{kind}/0000000000000000000000000000000000000000000000000000000000000000/report.html",
    ],
)
def test_other_paths_are_not_found(gate: Artifact, port: int, path: str) -> None:
    assert _get(port, path.format(kind=Kind.BENCHMARK_GATE, key=gate.key))[0] == 404


def test_a_page_of_newer_code_says_why_it_is_not_shown(gate: Artifact, port: int) -> None:
    manifest = gate.path / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), FORMAT_VERSION: 99}))
    status, page = _get(port, f"/{Kind.BENCHMARK_GATE}/{gate.key}/{PAGE}")

    assert (status, f"{manifest}: " in page) == (502, True)


@pytest.mark.threat("N9")
@every(
    "case",
    [
        (403, {"Host": "evil.example"}),
        (403, {"Host": "["}),
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": "http://localhost:3000"}),
        (403, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"}),
        (200, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}),
        (200, {"Host": "localhost:8001"}),
        (501, {}, "POST"),
    ],
)
def test_other_hosts_origins_and_methods_are_refused(gate: Artifact, port: int, case: tuple[Any, ...]) -> None:
    status, *asked = case
    assert _get(port, f"/{Kind.BENCHMARK_GATE}/{gate.key}/{PAGE}", *asked)[0] == status


def test_a_port_that_is_taken_is_misuse() -> None:
    with open_socket(0) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([*_COMMAND, "--port", str(port)], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert f"port {port}: Address already in use. Choose another one with --port, or with make ui" in done.stderr


def _has_ended(port: int) -> bool:
    """Whether nobody listens there any more, within ten seconds."""
    for _ in range(100):
        try:
            _get(port, "/")
        except (OSError, http.client.HTTPException):  # it may end in the middle of a reply
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, None], ids=["ended", "killed", "by itself"])
def test_the_server_runs_beside_a_command_and_ends_with_it(gate: Artifact, how: signal.Signals | None) -> None:
    code = (
        "import os, sys; print(os.getpid(), os.environ['MENS_STORE_PAGES'], flush=True); sys.stdin.read(); sys.exit(3)"
    )
    environment = {**os.environ, "MENS_STORE_ROOT": str(gate.path.parents[1])}
    environment.pop("MENS_STORE_PAGES", None)
    with subprocess.Popen(
        [*_COMMAND, "--port", "0", "--", sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        pid, address = process.stdout.readline().split()
        port = int(address.rpartition(":")[2])
        shown = _get(port, f"/{Kind.BENCHMARK_GATE}/{gate.key}/{PAGE}")
        if how is None:
            process.stdin.close()
        else:
            process.send_signal(how)
        code_of_command = process.wait(timeout=60)

    assert int(pid) == process.pid
    assert shown == (200, "<title>Refused: adapter 0123</title><p>a verdict</p>")
    assert code_of_command == (3 if how is None else -how)
    assert _has_ended(port)


def test_an_unknown_command_is_misuse(tmp_path: Path) -> None:
    environment = {**os.environ, "MENS_STORE_ROOT": str(tmp_path)}
    done = subprocess.run(
        [*_COMMAND, "--port", "0", "no-such-program"], capture_output=True, text=True, check=False, env=environment
    )

    assert done.returncode == 2
    assert "no-such-program: No such file or directory" in done.stderr
