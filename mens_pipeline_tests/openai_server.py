"""A local server that sends prepared replies in the format of OpenAI's chat completions, over real HTTP."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any


@dataclass(frozen=True)
class Served:
    """One reply of the server; the body is JSON or raw bytes, and `headers` are added to the usual ones."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class ChatServer:
    """A server that is running, and its requests: path, headers and content, in order."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def prompts(self) -> list[str]:
        """The last message of each request."""
        return [request["content"]["messages"][-1]["content"] for request in self.requests]


def completion(text: str | None, finish: str = "stop", tokens: int | None = 100, **message: Any) -> Served:
    """Return a reply in the format of OpenAI; without `tokens` it has no usage."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    usage = {} if tokens is None else {"usage": {"prompt_tokens": 40, "completion_tokens": 60, "total_tokens": tokens}}
    return Served(body={"id": "c", "object": "chat.completion", "created": 1, "choices": [choice], **usage})


@contextmanager
def serving(respond: Callable[[dict[str, Any], int], Served]) -> Iterator[ChatServer]:
    """Run a server until the block ends.

    `respond` gets the content of a request and the number of earlier ones; several threads may call it.
    """
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(running.requests)
                running.requests.append({"path": self.path, "headers": dict(self.headers), "content": content})
            reply = respond(content, number)
            data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = ChatServer(f"http://127.0.0.1:{server.server_address[1]}/v1")
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            thread.join()
