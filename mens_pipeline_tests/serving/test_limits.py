"""Limits of a server: size of bodies, time, simultaneous completions; and abandoned requests."""

import asyncio
import json
import re
import threading
import time
from typing import Any

import httpx2
import openai
import pytest
from fastapi import Request
from pydantic import BaseModel

from mens_pipeline.serving import application, http
from mens_pipeline.serving.http import RequestRefusedError, read_body
from mens_pipeline.serving.ollama import OllamaChatRequest
from mens_pipeline.serving.openai import ChatRequest
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline_tests.serving.running import Running
from mens_pipeline_tests.waits import wait_until

_ENDLESS: dict[str, Any] = {"model": "mens", "messages": [{"role": "user", "content": "Go on."}]}
_SHORT: dict[str, Any] = {**_ENDLESS, "max_tokens": 3}


_HEAD = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"


def _ask(server: Running, document: dict[str, Any]) -> httpx2.Response:
    return server.post("/v1/chat/completions", **document)


def _wait_until_free(server: Running) -> None:
    """Wait until a short request succeeds: nothing else is generated any more."""
    wait_until(lambda: _ask(server, _SHORT).status_code == 200)


@pytest.mark.threat("N4")
def test_a_completion_ends_with_an_error_at_the_timeout(busy: Running) -> None:
    """The status 504 does not make the client retry."""
    start = time.monotonic()
    with pytest.raises(openai.APIStatusError, match=r"The completion did not finish within 2 seconds") as caught:
        busy.openai(max_retries=2).chat.completions.create(**_ENDLESS)

    assert caught.value.status_code == 504
    assert 1.9 < time.monotonic() - start < 6


def test_a_stream_ends_with_an_error_at_the_timeout(busy: Running) -> None:
    texts: list[str | None] = []
    stream = busy.openai().chat.completions.create(**_ENDLESS, stream=True)
    with pytest.raises(openai.APIError, match=r"The completion did not finish within 2 seconds"):
        texts.extend(chunk.choices[0].delta.content for chunk in stream)

    assert len(texts) > 20


def test_ollama_gets_the_timeout_in_its_own_format(busy: Running) -> None:
    lines = busy.post("/api/generate", model="mens", prompt="Go on.").text.splitlines()

    assert json.loads(lines[0])["done"] is False
    assert json.loads(lines[-1])["error"].startswith("The completion did not finish within 2 seconds")


@pytest.mark.slow
@pytest.mark.threat("N4")
def test_rejects_requests_if_too_many_wait(busy: Running) -> None:
    _wait_until_free(busy)
    replies: list[httpx2.Response] = []
    threads = [threading.Thread(target=lambda: replies.append(_ask(busy, _ENDLESS))) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = sorted(reply.status_code for reply in replies)
    refused = next(reply for reply in replies if reply.status_code == 429)

    assert codes == [429] * 4 + [504] * 5
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert _ask(busy, _SHORT).status_code == 200


def test_health_responds_during_generation(busy: Running) -> None:
    """Within a tenth of a second at worst, on a quiet machine; here it must be well below the time of a completion."""
    thread = threading.Thread(target=_ask, args=(busy, _ENDLESS))
    thread.start()
    slowest = 0.0
    with busy.http() as client:
        for _ in range(20):
            start = time.monotonic()
            assert client.get("/health").json() == {"status": "ok"}
            assert client.get("/ready").json() == {"status": "ready"}
            slowest = max(slowest, time.monotonic() - start)
    thread.join()

    assert slowest < 1


@pytest.mark.threat("N4")
@pytest.mark.parametrize(
    ("stream", "line"), [(True, " 200 in .* incomplete"), (False, " 499 in ")], ids=["stream", "whole"]
)
def test_a_disconnected_client_stops_its_completion(busy: Running, stream: bool, line: str) -> None:  # noqa: FBT001 - a parameter
    _wait_until_free(busy)
    before = len(busy.lines)
    body = json.dumps({**_ENDLESS, "stream": stream}).encode()
    start = time.monotonic()
    with busy.connect() as client:
        client.sendall(f"{_HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        if stream:
            assert client.recv(64).startswith(b"HTTP/1.1 200")
        else:
            time.sleep(0.2)
    reply = _ask(busy, _SHORT)

    assert reply.status_code == 200
    assert time.monotonic() - start < 2
    wait_until(lambda: any(re.search(line, said) for said in busy.lines[before:]))


@pytest.mark.threat("N3")
@pytest.mark.parametrize("size", [20_001, 5_000_000])
def test_a_body_beyond_the_limit_is_refused(server: Running, size: int) -> None:
    reply = _ask(server, {**_SHORT, "messages": [{"role": "user", "content": "x" * size}]})

    assert reply.status_code == 413
    assert reply.json()["error"]["message"].startswith("The body is larger than 20000 bytes. Send less")
    assert reply.json()["error"]["code"] == "request_too_large"


@pytest.mark.threat("N3")
def test_a_body_without_a_length_is_read_up_to_the_limit(server: Running) -> None:
    sent = 0

    def endless() -> Any:
        nonlocal sent
        while True:
            sent += 1_000
            yield b" " * 1_000
            time.sleep(0.001)

    with server.http() as client:
        reply = client.post("/v1/chat/completions", content=endless())

    assert reply.status_code == 413
    assert sent < 2_000_000


def test_a_body_that_lies_about_its_length_is_refused(server: Running) -> None:
    with server.connect() as client:
        head = f"{_HEAD}Authorization: Bearer {server.token}\r\n"
        client.sendall(f"{head}Content-Length: 2\r\nConnection: close\r\n\r\n".encode() + b"{}" + b" " * 50_000)
        reply = client.recv(4_096)

    assert reply.startswith(b"HTTP/1.1 400")


class _Source:
    """A request whose body arrives at once, or never."""

    def __init__(self, body: bytes | None) -> None:
        self._body = body

    async def receive(self) -> dict[str, Any]:
        """Return the message of a server."""
        await asyncio.sleep(0)
        if self._body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._body, "more_body": False}


def _refuse(body: bytes | None, model: type[BaseModel] = ChatRequest) -> RequestRefusedError:
    request = Request({"type": "http", "method": "POST", "headers": []}, _Source(body).receive)
    with pytest.raises(RequestRefusedError) as refusal:
        asyncio.run(read_body(request, model, 1_048_576))
    return refusal.value


@pytest.mark.threat("N5")
@pytest.mark.parametrize("model", [ChatRequest, OllamaChatRequest])
@pytest.mark.parametrize(
    ("field", "item"),
    [("messages", b"1"), ("stop", b"1"), ("messages", b'{"role":"user","content":"x"}'), ("unknown", b"1")],
)
def test_half_a_million_errors_get_a_short_message(model: type[BaseModel], field: str, item: bytes) -> None:
    body = (
        b'{"model": "mens", "' + field.encode() + b'": [' + b",".join([item] * (1_000_000 // (len(item) + 1))) + b"]}"
    )
    start = time.process_time()
    refusal = _refuse(body, model)

    assert (refusal.status, len(str(refusal)) < 500) == (400, True)
    assert time.process_time() - start < 1


@pytest.mark.threat("N3")
def test_the_total_size_of_bodies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_MOST_HELD", 2_500)

    async def send(size: int) -> int:
        """Return the status of a body that arrives, but ends only after a while."""
        parts = iter([{"body": b" " * size, "more_body": True}, {"body": b"", "more_body": False}])

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0.01)
            return {"type": "http.request", **next(parts)}

        request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        with pytest.raises(RequestRefusedError) as refusal:
            await read_body(request, ChatRequest, 1_000)
        return refusal.value.status

    async def send_all() -> list[int]:
        return [*await asyncio.gather(*map(send, [1_000, 1_000, 1_000])), await send(1_000)]

    assert asyncio.run(send_all()) == [400, 400, 503, 400]


@pytest.mark.threat("N4")
def test_checks_wait_in_a_bounded_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    checked, may_end = list[str](), threading.Event()

    def check(source: str) -> dict[str, Any]:
        checked.append(source)
        assert may_end.wait(10)
        return {}

    monkeypatch.setattr(application, "_check", check)

    async def ask(queue: application.CheckQueue, source: str) -> int:
        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect" if source == "gone" else "http.request"}

        try:
            await queue.check(Request({"type": "http"}, receive), source)
        except RequestRefusedError as refusal:
            return refusal.status
        return 200

    async def ask_all(*sources: str, seconds: float = 10.0) -> list[int]:
        queue = application.CheckQueue(ServerLimits(1, 1_000, seconds, 1))
        tasks = [asyncio.create_task(ask(queue, source)) for source in sources]
        await asyncio.sleep(0.1)
        may_end.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(ask_all("first", "gone", "gone", "last")) == [200, 499, 499, 200]
    assert checked == ["first", "last"]
    may_end.clear()
    assert asyncio.run(ask_all("first", "late", seconds=0.05)) == [200, 504]
    assert asyncio.run(ask_all(*"123456")) == [200] * 5 + [429]


def test_names_ten_errors() -> None:
    refusal = _refuse(json.dumps({"model": "mens", "messages": [], **dict.fromkeys(map(str, range(20)), 1)}).encode())

    assert str(refusal).count("not supported here") == 9
    assert str(refusal).endswith("; and 11 more.")


def test_a_disconnect_before_the_body_is_logged(server: Running) -> None:
    before = len(server.lines)
    with server.connect() as client:
        head = f"{_HEAD}Authorization: Bearer {server.token}\r\n"
        client.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        time.sleep(0.2)
    wait_until(lambda: any(" 499 " in line for line in server.lines[before:]), 5)

    assert _refuse(None).status == 499


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "The body is not JSON: EOF while parsing"),
        (b"{", "The body is not JSON: EOF while parsing"),
        (b"[]", "Input should be an object"),
        (b"[" * 10_000, "recursion limit"),
        (b"\xff", "The body is not JSON: "),
    ],
)
def test_rejects_a_malformed_body(server: Running, content: bytes, message: str) -> None:
    with server.http() as client:
        reply = client.post("/v1/chat/completions", content=content)

    assert reply.status_code == 400
    assert message in reply.json()["error"]["message"]
