"""Requests that Dagster's web server accepts or refuses."""

import json
import re
from collections.abc import Iterator, Mapping

import pytest
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from mens_pipeline.orchestration.web_server import Webserver
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.every import every

_URL = "http://localhost:3000"
_SOCKET = "ws://localhost:3000/graphql"
_MUTATION = "mutation { setNuxSeen }"
_QUERY = {"query": "query { version }"}
_JSON = {"Content-Type": "application/json"}
_BODY = json.dumps({"query": _MUTATION})
_PAGE = {"Accept": "text/html", "Sec-Fetch-Dest": "document"}


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceProcessContext]:
    """An instance without code locations."""
    home = str(tmp_path_factory.mktemp("home"))
    with DagsterInstance.local_temp(home) as instance, WorkspaceProcessContext(instance, EmptyWorkspaceTarget()) as it:
        yield it


@pytest.fixture(scope="module")
def client(context: WorkspaceProcessContext) -> TestClient:
    """A client of its web server."""
    return TestClient(Webserver(context).create_asgi_app(), base_url=_URL)


def _ask(client: TestClient, method: str, path: str, headers: Mapping[str, str], body: str | None = None) -> int:
    return client.request(method, path, headers=headers, content=body, follow_redirects=False).status_code


@pytest.mark.threat("N9")
@every(
    "request_",
    [
        ("GET", f"/graphql?query={_MUTATION}", {}),
        ("GET", f"/graphql/?query={_MUTATION}", {}),
        ("GET", f"/graphql?query={_MUTATION}", {"Accept": "image/avif,*/*", "Sec-Fetch-Site": "cross-site"}),
        ("HEAD", f"/graphql?query={_MUTATION}", {}),
        ("POST", f"/graphql?query={_MUTATION}", {}),
        ("POST", f"/graphql?query={_MUTATION}", {"Content-Type": "application/x-www-form-urlencoded"}),
        ("POST", "/graphql", {"Content-Type": "application/graphql"}, _MUTATION),
        ("POST", "/graphql", {"Content-Type": "text/plain; charset=application/json"}, _BODY),
        ("POST", "/report_asset_materialization/promoted_adapter", {"Content-Type": "text/plain"}),
        ("PUT", "/graphql", _JSON, _BODY),
        ("POST", "/graphql", {**_JSON, "Origin": "http://evil.example"}, _BODY),
        ("POST", "/graphql", {**_JSON, "Origin": "null"}, _BODY),
        ("POST", "/graphql", {**_JSON, "Origin": "http://localhost:8001"}, _BODY),
        ("POST", "/graphql", {**_JSON, "Sec-Fetch-Site": "same-site"}, _BODY),
        ("POST", "/graphql", {**_JSON, "Host": "evil.example:3000"}, _BODY),
        ("GET", "/runs", {"Host": "evil.example"}),
        ("GET", "/runs", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe", "Accept": "text/html"}),
    ],
)
def test_requests_of_foreign_pages_are_refused(client: TestClient, request_: tuple[str, str, dict[str, str]]) -> None:
    assert _ask(client, *request_) == 403


@every(
    "request_",
    [
        ("GET", "/server_info", {}),
        ("GET", "/runs", {**_PAGE, "Sec-Fetch-Site": "none"}),
        ("GET", "/runs", {**_PAGE, "Sec-Fetch-Site": "cross-site"}),
        ("GET", "/graphql", _PAGE),
        ("POST", "/graphql", _JSON, json.dumps(_QUERY)),
        ("POST", "/graphql", {"Content-Type": "application/json; charset=utf-8"}, json.dumps(_QUERY)),
        ("POST", "/graphql", {**_JSON, "Origin": _URL, "Sec-Fetch-Site": "same-origin"}, json.dumps(_QUERY)),
        ("POST", "/graphql", {**_JSON, "Host": "127.0.0.1:3000"}, json.dumps(_QUERY)),
    ],
)
def test_own_pages_and_programs_are_accepted(client: TestClient, request_: tuple[str, str, dict[str, str]]) -> None:
    assert _ask(client, *request_) == 200


@pytest.mark.threat("N9")
def test_only_own_pages_may_subscribe(client: TestClient) -> None:
    subscription = 'subscription { pipelineRunLogs(runId: "none") { __typename } }'
    for origin in ({"Origin": _URL}, {}):
        with client.websocket_connect(_SOCKET, ["graphql-ws"], headers=origin) as socket:
            socket.send_json({"type": "start", "id": "1", "payload": {"query": subscription}})
            assert socket.receive_json()["type"] == "data"
    for foreign in ({"Origin": "http://evil.example"}, {"Origin": "http://localhost:8001"}, {"Host": "evil.example"}):
        with pytest.raises(WebSocketDisconnect), client.websocket_connect(_SOCKET, ["graphql-ws"], headers=foreign):
            pass


def test_host_names_of_a_proxy_are_accepted(
    client: TestClient, context: WorkspaceProcessContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {**_JSON, "Host": "ui.example.org", "Origin": "https://ui.example.org"}
    assert _ask(client, "POST", "/graphql", headers, json.dumps(_QUERY)) == 403
    monkeypatch.setenv("MENS_SERVE_HOSTS", "code.example.org, UI.example.org")
    behind_proxy = TestClient(Webserver(context).create_asgi_app(), base_url=_URL)

    assert _ask(behind_proxy, "POST", "/graphql", headers, json.dumps(_QUERY)) == 200


def test_no_command_of_ours_starts_a_server_without_the_checks() -> None:
    pages = (PROJECT_ROOT / name for name in ("Makefile", "docs/operations.md", "docs/index.md", "docs/scale.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)

    servers = re.compile(
        r"HTTPServer|TCPServer|uvicorn\.(run|Server)|(create|start)_server|DagsterWebserver|ray\.init\(\)"
    )
    package = PROJECT_ROOT / "mens_pipeline"
    found = {path for path in package.rglob("*.py") if servers.search(path.read_text(encoding="utf-8"))}

    assert found == {
        package / name for name in ("serving/pages.py", "serving/server.py", "orchestration/web_server.py")
    }
    assert "mens_pipeline.orchestration.web_server" in text
    assert re.findall(r"\b(?:dg|dagster) dev\b|bin/dagster-webserver\b", text) == []
