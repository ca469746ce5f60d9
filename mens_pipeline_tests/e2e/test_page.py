"""The pages that a maintainer opens: the graph, a run launched from it, and its checks."""

import base64
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from mens_pipeline_tests.e2e.server import Server, serving
from mens_pipeline_tests.firefox import FIREFOX, Page, firefox

_PATIENCE = 90
"""Seconds; the first page is slow on a cold machine."""
_ALT = "\ue00a"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(FIREFOX is None, reason="no Firefox on this machine; on Debian: apt install firefox-esr"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, seed_run: Path) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(seed_run / "store", folder / "store")
    with serving(folder, os.environ) as found:
        yield found


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with firefox() as page:
        page.resize(1500, 1000)
        yield page


def _wait_for_texts(page: Page, *texts: str) -> None:
    for text in texts:
        shown = f"[...document.querySelectorAll('*')].some(one => one.innerText?.trim() === {json.dumps(text)})"
        page.wait_for(shown, _PATIENCE)


def test_the_server_starts_without_a_warning(server: Server) -> None:
    said = (server.home.parent / "server.log").read_text(encoding="utf-8")
    start, serving, _ = said.partition("Serving dagster-webserver")

    assert serving, said
    assert not re.findall("(?i)warning|does not match|not be used|suppress", start), start


def test_the_graph_shows_every_stage(server: Server, page: Page) -> None:
    assets = ("extracted_corpus", "mixed_train_set", "qlora_adapter", "benchmark_gate", "promoted_adapter")
    page.open(f"{server.url}/asset-groups/")
    _wait_for_texts(page, "corpus", "training", "evaluation", "delivery")
    page.click(1200, 950)
    page.press("e", held=_ALT)
    _wait_for_texts(page, *assets)
    picture = base64.b64decode(page.screenshot())
    page.open(f"{server.url}/assets")
    _wait_for_texts(page, *assets)

    assert len(picture) > 20_000
    assert page.run("matchMedia('(prefers-color-scheme: dark)').matches") is False


def test_a_run_launched_from_the_page_ends_with_its_checks(server: Server, page: Page) -> None:
    page.open(f"{server.url}/locations/mens_pipeline/jobs/train_set")
    _wait_for_texts(page, "Materialize all")
    run = _click_launch(server, page, "Materialize all")

    assert server.wait(run, 300) == "SUCCESS"

    page.open(f"{server.url}/assets/mixed_train_set?view=checks")
    _wait_for_texts(page, "enough_pairs", "mixed_rows_accounted_for", "shares_as_asked", "Passed")


_MUTATION: Final = "mutation{setAutoMaterializePaused(paused:%s)}"
_ATTEMPTS: Final = """
(async url => {
    const image = new Image();
    const loaded = new Promise(done => { image.onload = image.onerror = done; });
    image.src = `${url}/graphql?query=MUTATION`;
    await loaded;
    const type = {"Content-Type": "text/plain; charset=application/json"};
    const body = JSON.stringify({query: "MUTATION"});
    await fetch(`${url}/graphql`, {method: "POST", mode: "no-cors", headers: type, body}).catch(() => null);
    await fetch(`${url}/graphql?query=MUTATION`, {method: "POST", mode: "no-cors"}).catch(() => null);
    const socket = new WebSocket(`${url.replace("http", "ws")}/graphql`, "graphql-ws");
    return await new Promise(done => { socket.onopen = () => done("open"); socket.onerror = () => done("refused"); });
})(URL)
"""


class _Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")


def _attempt(server: Server, page: Page, mutation: str) -> object:
    return page.run(_ATTEMPTS.replace("MUTATION", mutation).replace("URL", json.dumps(server.url)).strip())


@pytest.mark.threat("N9")
def test_a_foreign_page_changes_nothing(server: Server, page: Page) -> None:
    ask = "query { instance { autoMaterializePaused } }"
    server.ask(_MUTATION % "true")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as elsewhere:
        Thread(target=elsewhere.serve_forever, args=(0.1,)).start()
        page.open(f"http://127.0.0.1:{elsewhere.server_port}/")
        foreign = _attempt(server, page, _MUTATION % "false")
        elsewhere.shutdown()
    left = server.ask(ask)["instance"]["autoMaterializePaused"]
    page.open(f"{server.url}/asset-groups/")

    assert (foreign, left) == ("refused", True)
    assert _attempt(server, page, _MUTATION % "true") == "open"


def _click_launch(server: Server, page: Page, button: str) -> str:
    found = f"[...document.querySelectorAll('button')].find(one => one.innerText.trim() === {json.dumps(button)})"
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        page.wait_for(f"{found} && !{found}.disabled", _PATIENCE)
        page.run(f"void {found}.click()")
        for _ in range(40):
            reply = server.ask("query { runsOrError { ... on Runs { results { runId } } } }")
            if runs := reply["runsOrError"]["results"]:
                return str(runs[0]["runId"])
            time.sleep(0.5)
    pytest.fail("the button launched no run")
