"""A store with object storage behind it, on a real server: what machines agree on, and what they never see."""

import hashlib
import json
import socket
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import obstore
import pytest
from obstore.store import from_url

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.storage import remote as remote_module
from mens_pipeline.storage.remote import Remote
from mens_pipeline.storage.store import MANIFEST, Artifact, ArtifactStore, key_of

_INPUTS = {"a": 1}
_KEY = key_of(_INPUTS)


def _machine(folder: Path, url: str) -> ArtifactStore:
    return ArtifactStore(folder, Remote(url))


def _build(store: ArtifactStore, text: str = "hello\n", *, again: bool = False) -> tuple[Artifact, bool]:
    def write(folder: Path) -> dict[str, int]:
        (folder / "deep").mkdir()
        (folder / "deep" / "rows.txt").write_text(text)
        (folder / "same.txt").write_text("same\n")
        return {"num_rows": 1}

    return store.build("corpus", _INPUTS, write, again=again)


def _digest(line: str) -> str:
    return hashlib.sha256(f"{line}\n".encode()).hexdigest()


def _rows(artifact: Artifact | None) -> str:
    assert artifact is not None
    return (artifact.path / "deep" / "rows.txt").read_text()


def test_a_cold_cache_gets_an_artifact_by_its_key(machines: tuple[ArtifactStore, ArtifactStore]) -> None:
    first, second = machines
    assert second.get("corpus", _KEY) is None
    assert second.read_pointer("corpus", "latest") is None
    made, _ = _build(first)
    taken = second.get("corpus", _KEY)

    assert _rows(taken) == "hello\n"
    assert taken is not None
    assert taken.manifest == made.manifest
    assert taken.find_changed() == ()
    assert taken.path.is_relative_to(second.root)
    assert second.read_pointer("corpus", "latest") == _KEY
    assert _build(second, "never written") == (taken, True)
    assert not list(second.root.glob("corpus/.draft-*"))
    assert not (second.root / "corpus" / "latest").exists()


def test_two_writers_of_one_key_agree(machines: tuple[ArtifactStore, ArtifactStore]) -> None:
    """Whoever comes first; the other one takes what is there instead of its own, which need not be the same."""
    first, second = machines
    barrier = threading.Barrier(2)
    made: dict[str, Artifact] = {}

    def build(store: ArtifactStore, text: str) -> None:
        def write(folder: Path) -> dict[str, int]:
            barrier.wait(20)  # both have seen that there is none
            (folder / "deep").mkdir()
            (folder / "deep" / "rows.txt").write_text(text)
            return {}

        made[text] = store.build("corpus", _INPUTS, write)[0]

    threads = [threading.Thread(target=build, args=pair) for pair in ((first, "first\n"), (second, "second\n"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    texts = {_rows(made["first\n"]), _rows(made["second\n"])}

    assert len(texts) == 1
    assert made["first\n"].manifest == made["second\n"].manifest
    assert made["first\n"].find_changed() == made["second\n"].find_changed() == ()
    assert _rows(_machine(first.root.parent / "c", _url(first)).get("corpus", _KEY)) in texts


def _url(store: ArtifactStore) -> str:
    return store.documents.place("", "").rstrip("/")


def test_a_path_that_another_machine_wrote_is_found_here(machines: tuple[ArtifactStore, ArtifactStore]) -> None:
    first, second = machines
    path = _build(first)[0].path / "deep" / "rows.txt"
    assert first.locate(path) == path
    path.rename(path.with_name("elsewhere"))  # each machine has a disk of its own

    assert second.locate(path) == second.root / "corpus" / _KEY / "deep" / "rows.txt"
    assert second.locate(path).read_text() == "hello\n"
    for other in (Path("/srv/rows.txt"), Path("/srv/..", "0" * 64, "rows.txt"), Path("/srv/corpus", "0" * 64)):
        assert second.locate(other) == other


def test_what_is_forced_takes_the_place_of_what_is_there(
    machines: tuple[ArtifactStore, ArtifactStore], tmp_path: Path, store_url: str
) -> None:
    """For all machines: one that has the old one takes the new one when it is next asked to build."""
    first, second = machines
    _build(first, "old\n")
    second.get("corpus", _KEY)
    made, was_there = _build(first, "new\n", again=True)

    assert not was_there
    assert _rows(made) == "new\n"
    assert _rows(_machine(tmp_path / "c", store_url).get("corpus", _KEY)) == "new\n"
    taken, was_there = _build(second, "never written")
    assert was_there
    assert _rows(taken) == "new\n"


class _PowerFailure(BaseException):
    """What ends a process between two requests."""


def test_a_half_written_artifact_is_never_seen(
    machines: tuple[ArtifactStore, ArtifactStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are there, its manifest is not; the next run of the same machine publishes what lies there."""
    first, second = machines

    def fail(*_: object) -> bool:
        raise _PowerFailure

    with monkeypatch.context() as patched:
        patched.setattr(Remote, "swap", fail)
        with pytest.raises(_PowerFailure):
            _build(first)
    there = {item["path"].rpartition("/")[2] for batch in obstore.list(from_url(_url(first))) for item in batch}
    assert _digest("hello") in there
    assert MANIFEST not in there
    assert second.get("corpus", _KEY) is None

    assert _build(first, "never written")[1]
    assert _rows(second.get("corpus", _KEY)) == "hello\n"


@pytest.mark.parametrize("content", [b"tampered\n", None])
def test_a_tampered_object_makes_the_artifact_absent(
    machines: tuple[ArtifactStore, ArtifactStore], tmp_path: Path, store_url: str, content: bytes | None
) -> None:
    first, second = machines
    _build(first)
    place = f"corpus/{_KEY}/{_digest('hello')}"
    if content is None:
        obstore.delete(from_url(store_url), place)
    else:
        obstore.put(from_url(store_url), place, content)
    assert second.get("corpus", _KEY) is None
    assert list((second.root / "corpus").iterdir()) == []
    made, was_there = _build(second)

    assert not was_there
    assert _rows(made) == "hello\n"
    assert _rows(_machine(tmp_path / "c", store_url).get("corpus", _KEY)) == "hello\n"


def test_a_damaged_copy_is_fetched_again(machines: tuple[ArtifactStore, ArtifactStore]) -> None:
    first, second = machines
    _build(first)
    taken = second.get("corpus", _KEY)
    assert taken is not None
    (taken.path / "deep" / "rows.txt").write_text("spoilt\n")
    again, was_there = _build(second, "never written")

    assert (_rows(again), was_there) == ("hello\n", True)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"kind": "pairs"}, None),
        ({"inputs": {"a": 2}}, None),
        ({"outputs": {"../../../evil": {"sha256": hashlib.sha256(b"x").hexdigest()}}}, "evil"),
        ({"outputs": {"/tmp/mens-evil": {"sha256": hashlib.sha256(b"x").hexdigest()}}}, "evil"),  # noqa: S108
        ({"outputs": {"rows.txt": {"sha256": "00"}}}, None),
        ({"outputs": {MANIFEST: {"sha256": hashlib.sha256(b"x").hexdigest()}}}, None),
        ({"outputs": []}, None),
        (None, None),
    ],
)
def test_a_manifest_of_a_stranger_makes_no_artifact(
    tmp_path: Path, store_url: str, change: dict[str, object] | None, where: str | None
) -> None:
    """Nothing is written outside of its folder, and nothing is taken without a digest; what is made takes its place."""
    bucket, store = from_url(store_url), _machine(tmp_path / "deep" / "store", store_url)
    manifest = {"kind": "corpus", "key": _KEY, "inputs": _INPUTS, "parents": [], "outputs": {}}
    content = b"[" if change is None else json.dumps({**manifest, **change}).encode()
    obstore.put(bucket, f"corpus/{_KEY}/{MANIFEST}", content)
    obstore.put(bucket, f"corpus/{_KEY}/{hashlib.sha256(b'x').hexdigest()}", b"x")

    assert store.get("corpus", _KEY) is None
    assert where is None or not list(tmp_path.rglob(f"*{where}*"))
    assert not Path("/tmp/mens-evil").exists()  # noqa: S108
    assert _rows(_build(store)[0]) == "hello\n"
    assert _rows(_machine(tmp_path / "b", store_url).get("corpus", _KEY)) == "hello\n"


def test_one_that_is_published_and_damaged_meanwhile_gives_way(
    machines: tuple[ArtifactStore, ArtifactStore], tmp_path: Path, store_url: str
) -> None:
    """The manifest of another writer names a file that is not there: what was made here takes its place."""
    first, second = machines

    def write(folder: Path) -> dict[str, int]:
        _build(second, "theirs\n")
        obstore.delete(from_url(store_url), f"corpus/{_KEY}/{_digest('theirs')}")
        (folder / "deep").mkdir()
        (folder / "deep" / "rows.txt").write_text("ours\n")
        return {}

    assert _rows(first.build("corpus", _INPUTS, write)[0]) == "ours\n"
    assert _rows(_machine(tmp_path / "c", store_url).get("corpus", _KEY)) == "ours\n"


def test_a_server_that_is_gone_says_so(
    machines: tuple[ArtifactStore, ArtifactStore], monkeypatch: pytest.MonkeyPatch, store_url: str
) -> None:
    """One line, with what to do; what lies here can be read, and what is made meanwhile is not lost."""
    monkeypatch.setattr(remote_module, "_RETRY_SECONDS", 1.0)
    made, _ = _build(machines[0])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{probe.getsockname()[1]}")
    alone = _machine(machines[0].root, store_url)

    assert alone.get("corpus", _KEY) == made
    with pytest.raises(ConfigurationError, match="Make sure that MENS_STORE_URL names an existing bucket") as details:
        _build(alone)
    assert "\n" not in str(details.value)
    assert str(details.value).startswith(f"{store_url}/corpus/{_KEY}/{MANIFEST}: Generic S3 error")


@pytest.mark.slow
def test_a_server_that_restarts_costs_no_run(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests wait for it: the former four retries were over within a second."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _NoBucket, bind_and_activate=False) as server:
        server.server_bind()
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        store = _machine(tmp_path, store_url)

        def begin() -> None:
            server.server_activate()
            server.serve_forever(0.01)

        threading.Timer(2.0, begin).start()
        assert store.documents.read("k", "latest") == b""
        server.shutdown()


class _NoBucket(BaseHTTPRequestHandler):
    """What S3 itself answers where there is no such bucket; SeaweedFS makes one."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_bucket_that_is_not_there_says_so(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _NoBucket) as server:
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        store = _machine(tmp_path, store_url)
        with pytest.raises(ConfigurationError, match="names an existing bucket"):
            _build(store)
        with pytest.raises(ConfigurationError, match=r"k/latest: Object at location .* names an existing bucket"):
            store.documents.amend("k", "latest", lambda _found: b"x")
        assert not Remote(store_url).swap("k/latest", b"x", {"e_tag": "of one that is gone"})
        server.shutdown()

    assert _rows(ArtifactStore(tmp_path).get("corpus", _KEY)) == "hello\n"


def test_credentials_that_are_not_known_say_so(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    with pytest.raises(ConfigurationError, match="credentials of this process allow reads and writes") as details:
        _build(_machine(tmp_path, store_url))
    assert "another-secret" not in str(details.value)
    with pytest.raises(ConfigurationError, match=r"az://account/x: .*Account must be specified"):
        Remote("az://account/x")
    assert not (tmp_path / "corpus").exists()


def test_what_lies_there_is_listed_by_key_and_deleted_for_all(
    machines: tuple[ArtifactStore, ArtifactStore], store_url: str
) -> None:
    """With the sizes of all files; what has no manifest is not whole, and pointers are no artifacts."""
    made, _ = _build(machines[0])
    obstore.put(from_url(store_url), f"corpus/{'0' * 64}/{'1' * 64}", b"left")
    remote = Remote(store_url)
    left, whole = remote.list_artifacts()

    assert (left.key, left.num_bytes, left.is_whole) == ("0" * 64, 4, False)
    assert (whole.kind, whole.key, whole.is_whole) == ("corpus", made.key, True)
    sizes = sum(output["bytes"] for output in made.manifest["outputs"].values())
    assert whole.num_bytes == sizes + (made.path / MANIFEST).stat().st_size
    for key in (left.key, whole.key):
        remote.delete("corpus", key)
    assert remote.list_artifacts() == []
    assert machines[1].get("corpus", _KEY) is None
    assert _build(machines[1], "again\n")[1] is False


def test_what_is_taken_up_is_young_again(
    machines: tuple[ArtifactStore, ArtifactStore], store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _build(machines[0])
    remote = Remote(store_url)
    before = remote.list_artifacts()[0].modified
    time.sleep(1.1)  # servers count whole seconds
    assert _build(machines[1])[1] is True
    assert remote.list_artifacts()[0].modified == before
    monkeypatch.setattr(remote_module, "_RENEWED_AFTER", timedelta(0))
    assert _build(machines[1])[1] is True

    assert remote.list_artifacts()[0].modified > before
