"""A local stand-in for the Hub: it accepts repositories, branches, large files and commits, and keeps them."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from mens_pipeline.jobs.environment import training_environment
from mens_pipeline_tests.cli.invoking import run_main

TOKEN = "hf_" + "s" * 34
_LARGE = 10_000
_KIND = re.compile("^/api/(models|datasets)/")


@dataclass
class Hub:
    """Everything that was sent: commits by repository and branch, the newest last, and files by name.

    `large` has the contents of large files by SHA-256. `requests` are method and path; those of the path `refuse`
    are refused.
    """

    url: str = ""
    private: dict[str, bool] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    branches: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    files: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    refuse: str | None = None

    def begin(self, repo: str, branch: str, head: str) -> None:
        """Create a branch with one commit."""
        self.branches[repo, branch] = [head]
        self.files[repo, branch] = {}


def push(
    hub: Hub, root: Path, repo: str, *arguments: str, token: str = TOKEN, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run `mens push`; if it sends, in a separate process: the library reads its environment once."""
    environment = {
        **training_environment(),
        "HF_HUB_OFFLINE": "0",
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": token,
        "MENS_STORE_ROOT": str(root),
        **variables,
    }
    words = ("push", "--repo", repo, *arguments)
    if not token or "--yes" not in arguments:
        return run_main(*words, folder=root, variables=environment)
    command = [sys.executable, "-m", "mens_pipeline.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """The endpoints that `create_commit` requests."""

    hub: Hub

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Describe a branch."""
        repo, _, branch = _KIND.sub("", self.path).partition("/revision/")
        commits = self._begun().branches.get((repo, branch or "main"))
        if commits is None:
            self._reply({"error": "not there"}, 404, {"X-Error-Code": "RepoNotFound"})
        else:
            self._reply({"id": repo, "sha": commits[-1], "siblings": [], "private": True})

    def do_PUT(self) -> None:
        """Receive a large file."""
        content = self._body()
        if self.hub.refuse is not None and self.hub.refuse in self.path:
            self._reply({"error": "the disk is full"}, 400)
            return
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.path.rsplit("/", 1)[1]:
            self._reply({"error": "another file"}, 400)
            return
        self._begun().large[digest] = content
        self._reply({})

    def do_POST(self) -> None:
        """Handle everything else."""
        hub, body = self._begun(), self._body()
        if hub.refuse is not None and hub.refuse in self.path:
            self._reply({"error": "this token may not write here"}, 403)
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._reply({"error": "unknown token"}, 401)
        elif self.path == "/api/repos/create":
            self._create(json.loads(body))
        elif self.path == "/api/validate-yaml":
            head = yaml.safe_load(json.loads(body)["content"].split("---\n")[1])
            errors = [] if isinstance(head, dict) else [{"message": "no mapping"}]
            self._reply({"errors": errors, "warnings": []}, 400 if errors else 200)
        elif self.path.endswith(".git/info/lfs/objects/batch"):
            objects = [{**found, **self._actions(found["oid"])} for found in json.loads(body)["objects"]]
            self._reply({"transfer": "basic", "objects": objects})
        else:
            self._of_repo(body)

    def _of_repo(self, body: bytes) -> None:
        owner, name, what, branch = _KIND.sub("", self.path).split("/", 3)
        repo, branch = f"{owner}/{name}", branch.replace("%2F", "/")
        if what == "branch" and (repo, branch) in self.hub.branches:
            self._reply({"error": "Reference already exists"}, 409)
        elif what == "branch":
            self.hub.begin(repo, branch, self.hub.branches[repo, "main"][-1])
            self._reply({})
        elif what == "preupload":
            sizes = {file["path"]: file["size"] for file in json.loads(body)["files"]}
            modes = {path: "lfs" if size > _LARGE else "regular" for path, size in sizes.items()}
            files = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
            self._reply({"files": files})
        else:
            self._commit(repo, branch, [json.loads(line) for line in body.splitlines()])

    def _create(self, asked: dict[str, Any]) -> None:
        repo = f"{asked['organization']}/{asked['name']}"
        if repo in self.hub.private:
            self._reply({"error": "You already created this model repo", "url": f"{self.hub.url}/{repo}"}, 409)
            return
        self.hub.kinds[repo] = asked.get("type") or "model"
        self.hub.private[repo] = asked.get("visibility") == "private" or bool(asked.get("private"))
        self.hub.begin(repo, "main", "0" * 40)
        self._reply({"url": f"{self.hub.url}/{repo}", "name": repo})

    def _commit(self, repo: str, branch: str, lines: list[dict[str, Any]]) -> None:
        commits = self.hub.branches[repo, branch]
        if lines[0]["value"].get("parentCommit") != commits[-1]:
            self._reply({"error": "a commit has happened since"}, 412)
            return
        files = self.hub.files[repo, branch]
        for line in lines[1:]:
            value = line["value"]
            is_large = line["key"] == "lfsFile"
            files[value["path"]] = self.hub.large[value["oid"]] if is_large else base64.b64decode(value["content"])
        commits.append(hashlib.sha1(json.dumps(lines).encode()).hexdigest())  # noqa: S324 - as git names commits
        url = f"{self.hub.url}/{repo}/commit/{commits[-1]}"
        self._reply({"commitUrl": url, "commitOid": commits[-1]})

    def _actions(self, oid: str) -> dict[str, Any]:
        return {} if oid in self.hub.large else {"actions": {"upload": {"href": f"{self.hub.url}/large/{oid}"}}}

    def _begun(self) -> Hub:
        self.hub.requests.append(f"{self.command} {self.path}")
        return self.hub

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _reply(self, document: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
