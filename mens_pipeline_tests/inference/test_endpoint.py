"""A model behind an OpenAI-compatible address."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Thread
from typing import Any

import pytest
from pydantic import SecretStr

from mens_pipeline.corpus.evolution.operators import ModelRequest, Reply
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.inference.endpoint import ChatEndpoint, Ledger
from mens_pipeline_tests.openai_server import ChatServer, Served, completion, serving

_KEY = "sk-not-for-anybody-else"
_REQUESTS = [ModelRequest(f"{number:064x}", "You write Vox.", f"Write f{number}.") for number in range(1, 5)]


_NOWHERE = Ledger(Path("/nowhere/ledger.jsonl"))


def _endpoint(server: ChatServer, **changes: Any) -> ChatEndpoint:
    usual = {"url": server.url, "name": "m", "ledger": _NOWHERE, "key": SecretStr(_KEY), "first_wait": 0.01}
    return ChatEndpoint(**{**usual, **changes})


def _completions(endpoint: ChatEndpoint, requests: list[ModelRequest], time_left: float = 60.0) -> dict[str, Reply]:
    with TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.jsonl")
        return replace(endpoint, ledger=ledger).ask(requests, lambda: time_left)


def test_sends_requests_in_the_format_of_openai() -> None:
    with serving(lambda _content, _number: completion("fn f() { }")) as server:
        replies = _completions(_endpoint(server, temperature=0.5, max_new_tokens=99), _REQUESTS[:1])
    request = server.requests[0]

    assert replies == {
        _REQUESTS[0].key: Reply(key=_REQUESTS[0].key, text="fn f() { }", stopped=True, num_tokens=100, num_written=60)
    }
    assert request["path"] == "/v1/chat/completions"
    assert request["headers"]["Authorization"] == f"Bearer {_KEY}"
    assert request["content"] == {
        "model": "m",
        "messages": [{"role": "system", "content": "You write Vox."}, {"role": "user", "content": "Write f1."}],
        "max_tokens": 99,
        "temperature": 0.5,
        "seed": 0,
    }


def test_several_requests_are_sent_at_once() -> None:
    barrier = Barrier(4)

    def respond(_content: dict[str, Any], _number: int) -> Served:
        barrier.wait(timeout=30)
        return completion("x")

    with serving(respond) as server:
        replies = _completions(_endpoint(server, concurrency=4), _REQUESTS)

    assert replies.keys() == {request.key for request in _REQUESTS}


@pytest.mark.parametrize(
    ("status", "wait", "first_wait"),
    [
        *((status, "0", 1e9) for status in (429, 500, 503)),
        *(pytest.param(503, wait, 0.01, marks=pytest.mark.slow) for wait in ("\u00b2", "\u0663", "1e9", "-1", "")),
    ],
)
def test_repeats_a_request_to_a_busy_server(status: int, wait: str, first_wait: float) -> None:
    """After the wait that it names; a wait that is not a number is ignored."""
    busy = Served(status, {"error": "busy"}, {"Retry-After": wait.encode().decode("latin-1")})
    with serving(lambda _content, number: busy if number < 2 else completion("x")) as server:
        replies = _completions(_endpoint(server, first_wait=first_wait), _REQUESTS[:1])

    assert len(server.requests) == 3
    assert [reply.text for reply in replies.values()] == ["x"]


@pytest.mark.parametrize(("time_left", "num_requests"), [(5.0, 1), (0.0, 0)], ids=["less than a wait", "no time"])
def test_no_request_starts_without_enough_time(time_left: float, num_requests: int) -> None:
    with serving(lambda _content, _number: Served(429, {}, {"Retry-After": "30"})) as server:
        assert _completions(_endpoint(server), _REQUESTS[:1], time_left=time_left) == {}

    assert len(server.requests) == num_requests


_WRONG = Served(401, {"error": f"wrong key {_KEY}"}, {"Location": "http://127.0.0.1:9/"})


@pytest.mark.parametrize(
    ("served", "num_requests", "message"),
    [
        *(
            (replace(_WRONG, status=status), 1, rf"status {status}.*MENS_EVOL_API_KEY")
            for status in (400, 401, 404, 307)
        ),
        (Served(503, {"error": "busy"}, {"Retry-After": "soon"}), 3, r"status 503.*3 times.*in the ledger"),
        (Served(body=b"<html>"), 1, "Name an OpenAI-compatible address"),
        (Served(body={"choices": []}), 1, "Name an OpenAI-compatible address"),
        (Served(body=b"not gzip", headers={"Content-Encoding": "gzip"}), 1, "DecodingError.*in the ledger"),
    ],
)
def test_gives_up_on_a_server_without_completions(served: Served, num_requests: int, message: str) -> None:
    """Only a busy one gets the request again; the key is not shown."""
    with serving(lambda _content, _number: served) as server, pytest.raises(RefusedError, match=message) as refused:
        _completions(_endpoint(server, num_retries=2), _REQUESTS[:1])

    assert len(server.requests) == num_requests
    assert _KEY not in str(refused.value) + repr(_endpoint(server))
    with pytest.raises(RefusedError, match=re.escape(f"{server.url}: ConnectError")):  # nobody listens any more
        _completions(_endpoint(server), _REQUESTS[:1])


def test_keeps_replies_received_before_a_failure(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    contents = [completion("x"), Served(401, {})]
    with serving(lambda _content, number: contents[number]) as server, pytest.raises(RefusedError, match="status 401"):
        _endpoint(server, concurrency=1, ledger=ledger).ask(_REQUESTS[:2], lambda: 60.0)

    assert [ledger.find(request.key) is not None for request in _REQUESTS[:2]] == [True, False]
    assert ledger.num_new == 1


def test_a_reply_may_be_cut_declined_or_without_usage() -> None:
    """The limit, a refusal instead of text, and a server without usage, which counts as if it had used all tokens."""
    contents = [completion("x", "length"), completion(None, refusal="No."), completion(None, tokens=None)]
    with serving(lambda _content, number: contents[number]) as server:
        replies = list(_completions(_endpoint(server, concurrency=1, key=None), _REQUESTS[:3]).values())

    assert [reply.stopped for reply in replies] == [False, True, True]
    assert [reply.text for reply in replies] == ["x", "No.", ""]
    assert replies[2].num_tokens == _REQUESTS[2].num_bytes + 1024
    assert "Authorization" not in server.requests[0]["headers"]


@pytest.mark.parametrize(
    ("url", "advice", "key"),
    [
        ("https://host/v1", "MENS_EVOL_API_KEY: expected printable ASCII", f"{_KEY}\n"),
        ("https://host/v1", "MENS_EVOL_API_KEY: expected printable ASCII", f"{_KEY}\u00fc"),
        ("ftp://host/v1", "Write it as https://HOST/v1", _KEY),
        ("host/v1", "Write it as https://HOST/v1", _KEY),
        ("http://[::1", "Write it as https://HOST/v1", _KEY),
        ("https://user:secret@host/v1", "Set MENS_EVOL_API_KEY", _KEY),
        ("http://example.org/v1", "Use https", _KEY),
    ],
)
def test_rejects_an_address_that_must_not_get_the_key(url: str, advice: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match=advice) as info:
        ChatEndpoint(url, "m", _NOWHERE, SecretStr(key))

    assert "secret@" not in str(info.value)
    assert _KEY not in str(info.value)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "length", "content_filter", "tool_calls", None])
def test_only_a_reply_with_the_reason_stop_is_complete(end: str | None) -> None:
    choice = {"message": {"content": "x"}, **({"finish_reason": end} if end else {})}
    with serving(lambda _content, _number: Served(body={"choices": [choice]})) as server:
        (reply,) = _completions(_endpoint(server), _REQUESTS[:1]).values()
    assert reply.stopped is (end == "stop")


def test_gives_up_on_a_reply_without_an_end() -> None:
    with (
        serving(lambda _content, _number: Served(body=b"x" * 10_000_001)) as server,
        pytest.raises(RefusedError, match=r"an answer of more than 10000000 bytes"),
    ):
        _completions(_endpoint(server), _REQUESTS[:1])
    with drip() as url, pytest.raises(RefusedError, match=r"no answer within 0\.5 seconds\. Run the same"):
        _completions(ChatEndpoint(url, "m", _NOWHERE, completion_seconds=0.5), _REQUESTS[:1])


@contextmanager
def drip() -> Iterator[str]:
    """Run a server that sends a byte every tenth of a second, each in time, until its client leaves."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b" ")
                    time.sleep(0.1)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
