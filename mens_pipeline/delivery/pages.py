"""Web server of the pages of verdicts, for people on this machine: `report.html`, and nothing else of the store."""

import os
import re
import socket
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from mens_pipeline.errors import ConfigurationError, MensError
from mens_pipeline.promotion.history import KIND as PROMOTED
from mens_pipeline.promotion.receipt import KIND as GATE
from mens_pipeline.promotion.receipt import PAGE
from mens_pipeline.storage.store import ArtifactStore

ADDRESS: Final = "127.0.0.1"
_HERE: Final = frozenset({"localhost", ADDRESS})
_PLACE: Final = re.compile(rf"/({GATE}|{PROMOTED})/([0-9a-f]{{64}})/{re.escape(PAGE)}")


def open_socket(port: int) -> socket.socket:
    """Return a socket that only this machine reaches.

    Raises:
        ConfigurationError: It is taken.
    """
    try:
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        advice = "Name another with --port, or make ui PAGES=PORT."
        raise ConfigurationError(f"port {port}: {os.strerror(error.errno or 0)}. {advice}") from error


class PageServer(ThreadingHTTPServer):
    """Serves the pages of a store at a socket."""

    daemon_threads = True

    def __init__(self, at: socket.socket, store: ArtifactStore, parent: int | None = None) -> None:
        super().__init__(at.getsockname(), _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = at
        self.server_name, self.server_port = at.getsockname()
        self.store = store
        self._parent = parent

    def service_actions(self) -> None:
        """End with the process that it was started for; looked at twice a second."""
        if self._parent is not None and os.getppid() != self._parent:
            raise SystemExit


class _Request(BaseHTTPRequestHandler):
    """One request; a page may have its own name lead here, and its requests then carry that name."""

    server: PageServer
    timeout = 30

    def do_GET(self) -> None:
        """Respond with a page, or with what is wrong."""
        if self.headers.get("Host", "").partition(":")[0] not in _HERE:
            self.send_error(HTTPStatus.FORBIDDEN, f"Ask for http://{ADDRESS}.")
            return
        found = _PLACE.fullmatch(self.path)
        try:
            artifact = self.server.store.get(*found.groups()) if found is not None else None
        except MensError as error:
            self.send_error(HTTPStatus.BAD_GATEWAY, str(error))
            return
        if artifact is None or not (artifact.path / PAGE).is_file():
            self.send_error(HTTPStatus.NOT_FOUND, f"There is no such page. Pages are /{GATE}/KEY/{PAGE}")
            return
        content = (artifact.path / PAGE).read_bytes()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the library
        """Write nothing: it shares a terminal with the UI."""
