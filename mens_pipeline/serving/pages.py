"""A web server for this machine only: the report pages of verdicts and champions, and lists of them."""

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.extract.forgotten import SourcePolicy
from mens_pipeline.errors import ConfigurationError, MensError
from mens_pipeline.promotion.bill import format_refused_files
from mens_pipeline.promotion.receipt import PAGE
from mens_pipeline.serving.access import LOCAL_NAMES, Access, check_access
from mens_pipeline.serving.http import RequestRefusedError
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import MANIFEST, ArtifactStore

ADDRESS: Final = "127.0.0.1"
_ACCESS: Final = Access(None, LOCAL_NAMES)
_KINDS: Final = {Kind.BENCHMARK_GATE: "Verdicts", Kind.PROMOTED_ADAPTER: "Champions"}
_LIST: Final = re.compile(rf"/(?:({'|'.join(_KINDS)})/)?")
_PLACE: Final = re.compile(rf"/({'|'.join(_KINDS)})/([0-9a-f]{{64}})/{re.escape(PAGE)}")
_TITLE: Final = re.compile("<title>([^<]*)</title>")
_HEAD_BYTES: Final = 4_096  # the title is in these first bytes of a page
_STYLE: Final = "body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }"


def open_socket(port: int) -> socket.socket:
    """Open a socket that only this machine reaches, or raise ConfigurationError if the port is taken."""
    try:
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        advice = "Choose another one with --port, or with make ui PAGES=PORT."
        raise ConfigurationError(f"port {port}: {os.strerror(error.errno or 0)}. {advice}") from error


class PageServer(ThreadingHTTPServer):
    """Serves the pages of a store at a socket."""

    daemon_threads = True

    def __init__(
        self,
        at: socket.socket,
        store: ArtifactStore,
        parent: int | None = None,
        policy: Callable[[], SourcePolicy] = SourcePolicy,
    ) -> None:
        super().__init__(at.getsockname(), _PageRequest, bind_and_activate=False)
        self.socket.close()
        self.socket = at
        self.server_name, self.server_port = at.getsockname()
        self.store, self.policy = store, policy
        self._parent = parent

    def service_actions(self) -> None:
        """End with the parent process; called twice a second."""
        if self._parent is not None and os.getppid() != self._parent:
            raise SystemExit


class _PageRequest(BaseHTTPRequestHandler):
    server: PageServer
    timeout = 30

    def do_GET(self) -> None:
        try:
            check_access({name.lower(): value for name, value in self.headers.items()}, self.path, _ACCESS)
        except RequestRefusedError:
            self.send_error(HTTPStatus.FORBIDDEN, f"Use http://{ADDRESS}.")
            return
        found, wanted = _PLACE.fullmatch(self.path), _LIST.fullmatch(self.path)
        try:
            if wanted is not None:
                self._send("\n".join(_list_pages(self.server.store.root, wanted[1])).encode())
                return
            artifact = self.server.store.get(*found.groups()) if found is not None else None
            notice = format_refused_files(artifact, self.server.policy())
        except (MensError, OSError) as error:
            self.send_error(HTTPStatus.BAD_GATEWAY, explain=str(error))  # a status line is Latin-1
            return
        if artifact is None or not artifact.file(PAGE).is_file():
            self.send_error(HTTPStatus.NOT_FOUND, "No page at this address. All pages are listed at /")
            return
        content = artifact.file(PAGE).read_text(encoding="utf-8")
        shown = f"</h1>\n<p><strong>{escape(notice)}</strong></p>" if notice else "</h1>"
        self._send(content.replace("</h1>", shown, 1).encode())

    def _send(self, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the library
        """Write nothing, because the UI uses the same terminal."""


def _list_pages(root: Path, wanted: str | None) -> Iterator[str]:
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Reports</title><style>{_STYLE}</style>'
    for kind, heading in _KINDS.items():
        if wanted not in {None, kind}:
            continue
        pages = [path for path in root.glob(f"{kind}/*/{PAGE}") if (path.parent / MANIFEST).is_file()]
        yield f"<h1>{heading}</h1><ul>"
        for made, page in sorted(((page.stat().st_mtime, page) for page in pages), reverse=True):
            with page.open(encoding="utf-8", errors="replace") as lines:
                title = _TITLE.search(lines.read(_HEAD_BYTES))
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(made))
            text = title[1] if title is not None else page.parent.name[:12]
            yield f'<li><a href="/{kind}/{page.parent.name}/{PAGE}">{text}</a>, {when}'
        yield "</ul>" if pages else "</ul><p>None yet."
