"""Idle connections: closed after a while, limited in number, and logged once if there are too many."""

import asyncio
import errno
import os
import resource
import socket
import time
from contextlib import ExitStack
from typing import Any

import pytest

from mens_pipeline.serving.connections import BoundedConnection, limit_error_log, most_connections
from mens_pipeline_tests.serving.running import TOKEN, Running

_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-A: "


def _read_reply(connection: socket.socket, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        part = connection.recv(10_000)
        assert part, received
        received += part
    return received


def _is_closed(connection: socket.socket, seconds: float = 0.0) -> bool:
    connection.settimeout(seconds)
    try:
        return connection.recv(1_000) == b""
    except (BlockingIOError, TimeoutError):
        return False
    except ConnectionError:
        return True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers must arrive within a second."""
    monkeypatch.setattr(BoundedConnection, "header_seconds", 1.0)


@pytest.mark.threat("N8")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("sent", [b"", _HEAD], ids=["nothing", "half a header"])
def test_incomplete_headers_close_the_connection(server: Running, sent: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(sent)
        start = time.monotonic()
        while not _is_closed(connection, 0.1):
            assert time.monotonic() < start + 5
            if sent:
                connection.sendall(b"a")
    assert time.monotonic() - start < 4


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_connection_with_slow_requests_stays_open(server: Running) -> None:
    head = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    with server.connect() as connection:
        connection.sendall(f"POST /api/chat HTTP/1.1\r\n{head}Content-Length: 2\r\n\r\n".encode())
        time.sleep(1.5)
        connection.sendall(b"{}")
        assert b"400 Bad Request" in _read_reply(connection, b"}")
        time.sleep(1.5)
        connection.sendall(f"GET /v1/models HTTP/1.1\r\n{head}\r\n".encode())
        assert b"200 OK" in _read_reply(connection, b"]}")


@pytest.mark.threat("N8")
def test_a_new_connection_replaces_a_silent_one(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "most", 5)
    with ExitStack() as stack:
        silent = [stack.enter_context(server.connect()) for _ in range(100)]
        for connection in silent[-3:]:
            connection.sendall(_HEAD)
        with server.http() as client:
            assert client.get("/health").status_code == 200
        open_ones = [connection for connection in silent if not _is_closed(connection)]

    assert len(open_ones) <= 5


def test_rejects_a_connection_if_all_others_are_busy(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "most", 2)
    post = f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9\r\n\r\n"
    with server.connect() as first, server.connect() as second:
        for connection in (first, second):
            connection.sendall(post.encode())
        time.sleep(0.5)
        with server.connect() as third:
            reply = third.recv(1_000)

    assert reply.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 2" in reply


def test_the_limit_of_connections_depends_on_that_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for soft in (64, 200, 20_000, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _which, soft=soft: (soft, soft))
        found.append(most_connections())

    assert found == [16, 100, 1_000, 1_000]


@pytest.mark.threat("N8")
def test_a_full_file_table_is_logged_once() -> None:
    details: list[str] = []
    others: list[Any] = []
    loop = asyncio.new_event_loop()
    loop.default_exception_handler = others.append  # type: ignore[assignment, method-assign]
    handle = limit_error_log(details.append)
    for _ in range(1_000):
        handle(
            loop, {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "Too many")}
        )
    other = {"message": "else", "exception": OSError(errno.EPIPE, os.strerror(errno.EPIPE))}
    handle(loop, other)
    loop.close()

    (detail,) = details
    assert detail.startswith("new connections are waiting: Too many. ")
    assert "ulimit -n" in detail
    assert others == [other]
