"""Access by host name, origin and token."""

from collections.abc import Mapping
from pathlib import Path

import httpx2
import pytest
from pydantic import SecretStr

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.serving.access import LOCAL_NAMES, Access, check_access
from mens_pipeline.serving.http import RequestRefusedError
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline.serving.server import access_to, resolve_address
from mens_pipeline_tests.serving.running import TOKEN, Running, running

_LOCAL = Access(None, LOCAL_NAMES)
_ANYWHERE = Access(SecretStr(TOKEN), None)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost"},
        {"host": "LOCALHOST:8080"},
        {"host": "127.0.0.1:1"},
        {"host": "localhost:8080", "origin": "http://localhost:8080"},
        {"host": "[::1]:8080", "origin": "http://[::1]:8080"},
        {"host": "localhost", "origin": "http://localhost:80"},
        {"host": "localhost", "origin": "https://localhost"},
        {"host": "localhost", "origin": "http://localhost", "sec-fetch-site": "same-origin"},
        {"host": "localhost", "sec-fetch-site": "cross-site", "sec-fetch-dest": "document"},
    ],
)
def test_accepts_requests_from_this_machine(headers: Mapping[str, str]) -> None:
    check_access(headers, "/v1/models", _LOCAL)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"host": "evil.example"}, r"`evil\.example` is not allowed\. Use http://localhost"),
        ({"host": "localhost.evil.example:8080"}, "is not allowed"),
        ({"host": "evil.example@localhost"}, "is not allowed"),
        ({}, "is not allowed"),
        ({"host": "[::1"}, "is not allowed"),
        ({"host": "localhost", "origin": "http://evil.example"}, r"Pages of `http://evil\.example` may not send"),
        ({"host": "localhost", "origin": "null"}, "Pages of `null` may not send requests"),
        ({"host": "localhost", "origin": "http://127.0.0.1:8080"}, "may not send requests"),
        ({"host": "localhost:8080", "origin": "http://localhost:3000"}, "`http://localhost:3000` may not send"),
        ({"host": "localhost:8080", "origin": "http://localhost"}, "may not send requests"),
        ({"host": "localhost:8080", "origin": "http://localhost:99999"}, "may not send requests"),
        ({"host": "localhost", "sec-fetch-site": "cross-site", "sec-fetch-dest": "image"}, "`another site` may not"),
        ({"host": "localhost", "sec-fetch-site": "same-site", "sec-fetch-dest": "iframe"}, "`another site` may not"),
    ],
)
def test_rejects_requests_of_other_hosts_and_pages(headers: Mapping[str, str], message: str) -> None:
    with pytest.raises(RequestRefusedError, match=message) as caught:
        check_access(headers, "/v1/models", _LOCAL)

    assert caught.value.status == 403


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer é"]
)
def test_a_token_grants_access_from_anywhere(value: str) -> None:
    for scheme in ("Bearer", "bearer"):
        check_access({"host": "models.example", "authorization": f"{scheme} {TOKEN}"}, "/v1/models", _ANYWHERE)
    with pytest.raises(RequestRefusedError, match="Send it as `Authorization: Bearer TOKEN`") as caught:
        check_access({"host": "models.example", "authorization": value}, "/v1/models", _ANYWHERE)

    assert (caught.value.status, TOKEN in str(caught.value)) == (401, False)


@pytest.mark.threat("N1")
@pytest.mark.parametrize(
    "path", ["/v1/models", "/api/tags", "/metrics", "/v1/chat/completions", "/nowhere", "/health/x"]
)
def test_every_path_except_health_requires_the_token(server: Running, path: str) -> None:
    reply = httpx2.get(f"{server.url}{path}")

    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert httpx2.get(f"{server.url}/health").json() == {"status": "ok"}
    assert httpx2.get(f"{server.url}/ready").json() == {"status": "ready"}


@pytest.mark.threat("N2")
def test_other_hosts_and_origins_are_refused_over_the_wire(server: Running) -> None:
    with server.http() as client:
        host = client.get("/v1/models", headers={"Host": "evil.example"})
        origin = client.post("/v1/chat/completions", json={}, headers={"Origin": "http://evil.example"})
        preflight = client.options("/v1/chat/completions", headers={"Origin": f"{server.url}"})

    assert (host.status_code, host.json()["error"]["code"]) == (403, "host_not_allowed")
    assert (origin.status_code, origin.json()["error"]["type"]) == (403, "permission_error")
    assert preflight.status_code == 405
    assert not any(name.startswith("access-control") for name in (*origin.headers, *preflight.headers))


def test_unknown_paths_get_errors_in_the_format_of_their_api(server: Running) -> None:
    with server.http() as client:
        replies = {path: client.get(path) for path in ("/docs", "/openapi.json", "/v1/responses", "/api/no")}

    assert {reply.status_code for reply in replies.values()} == {404}
    assert replies["/docs"].json()["error"]["type"] == "not_found_error"
    assert replies["/api/no"].json() == {"error": "GET /api/no: Not Found. See `mens serve --help` for all paths."}


@pytest.mark.threat("N6")
def test_the_log_contains_neither_token_nor_text(server: Running) -> None:
    secret = "a request of somebody"  # noqa: S105 - text that must not be logged
    with server.http() as client:
        client.post("/v1/chat/completions?key=abc", json={"model": "mens", "messages": [], "user": secret})
        client.get("/a%0Aready: b")
    log = "\n".join(server.lines)

    assert "POST /v1/chat/completions 400 in 0" in log
    assert "GET /a\\nready: b 404 in" in log
    assert not any(text in log for text in (TOKEN, secret, "key=abc"))


def test_a_proxy_may_use_its_own_host_names_and_path(merged: Path) -> None:
    local = resolve_address("127.0.0.1", 0)
    access = access_to(local, SecretStr(TOKEN), "MENS_SERVE_TOKEN", ["Code.Example.org"], "/vox")
    headers = {"Host": "code.example.org", "Authorization": f"Bearer {TOKEN}"}
    with running(merged, ServerLimits(1, 20_000, 60.0, 40), TOKEN, access=access) as server, server.http() as client:
        models = [client.get(path, headers=headers) for path in ("/vox/v1/models", "/v1/models")]
        page = client.get("/vox", headers=headers)
        posted = client.post("/vox/check", headers=headers, json={"source": "fn f() {}"})
        refused = client.get("/vox/v1/models", headers=headers | {"Host": "evil.example"})
        none = client.get("/voxel/v1/models", headers=headers)
        figures = client.get("/vox/metrics", headers=headers).text

    assert [reply.status_code for reply in models] == [200, 200]
    assert (page.status_code, page.headers["location"]) == (307, "vox/")
    assert posted.json()["ok"] is True
    assert 'mens_request_seconds_count{path="/v1/models",status="200"} 2.0' in figures
    assert (refused.status_code, none.status_code) == (403, 404)
    assert "MENS_SERVE_HOSTS" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("hosts", "token", "base_path", "message"),
    [
        (["a.example"], None, "", r"MENS_SERVE_HOSTS a\.example: other machines can reach this server, but no token"),
        ([], "geheim-\xe4-0123456789", "", "MENS_SERVE_TOKEN: no header can carry it. Use ASCII"),
        ([], "secret-\udcff-0123456789", "", "MENS_SERVE_TOKEN: no header can carry it"),
        ([], "secret-0123456789 ", "", "MENS_SERVE_TOKEN: no header can carry it"),
        ([], None, "vox", "--base-path vox: not a path. Use one such as /vox"),
        ([], None, "/vox/", "--base-path /vox/: not a path"),
    ],
)
def test_a_proxy_needs_a_valid_token_and_path(
    hosts: list[str], token: str | None, base_path: str, message: str
) -> None:
    secret = None if token is None else SecretStr(token)
    with pytest.raises(ConfigurationError, match=message):
        access_to(resolve_address("127.0.0.1", 0), secret, "MENS_SERVE_TOKEN", hosts, base_path)


def test_clients_of_ollama_detect_the_server(server: Running) -> None:
    with server.http() as client:
        head, loaded = client.head("/"), client.get("/api/ps").json()

    assert (head.status_code, head.content) == (200, b"")
    assert [model["name"] for model in loaded["models"]] == [f"{name}:latest" for name in server.served.names]
