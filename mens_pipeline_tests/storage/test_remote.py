"""A store with object storage, on a real server."""

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


def _open_store(folder: Path, url: str) -> ArtifactStore:
    return ArtifactStore(folder, Remote(url))


def _build(store: ArtifactStore, text: str = "hello\n", *, again: bool = False) -> tuple[Artifact, bool]:
    def write(folder: Path) -> dict[str, int]:
        (folder / "deep").mkdir()
        (folder / "deep" / "rows.txt").write_text(text)
        (folder / "same.txt").write_text("same\n")
        return {"num_rows": 1}

    return store.build("corpus", _INPUTS, write, again=again)


def _hash_line(line: str) -> str:
    return hashlib.sha256(f"{line}\n".encode()).hexdigest()


def _read_rows(artifact: Artifact | None) -> str:
    assert artifact is not None
    return (artifact.path / "deep" / "rows.txt").read_text()


def test_a_cold_cache_gets_an_artifact_by_its_key(machines: tuple[ArtifactStore, ArtifactStore]) -> None:
    first, second = machines
    assert second.get("corpus", _KEY) is None
    assert second.read_pointer("corpus", "latest") is None
    made, _ = _build(first)
    fetched = second.get("corpus", _KEY)

    assert _read_rows(fetched) == "hello\n"
    assert fetched is not None
    assert fetched.manifest == made.manifest
    assert fetched.find_changed() == ()
    assert fetched.path.is_relative_to(second.root)
    assert second.read_pointer("corpus", "latest") == _KEY
    assert _build(second, "never written") == (fetched, True)
    assert not list(second.root.glob("corpus/.draft-*"))
    assert not (second.root / "corpus" / "latest").exists()


def test_two_writers_of_one_key_agree(machines: tuple[ArtifactStore, ArtifactStore]) -> None:
    """The first to publish wins; the other uses that artifact instead of its own, even if they differ."""
    first, second = machines
    barrier = threading.Barrier(2)
    made: dict[str, Artifact] = {}

    def build(store: ArtifactStore, text: str) -> None:
        def write(folder: Path) -> dict[str, int]:
            barrier.wait(20)  # neither has found an artifact
            (folder / "deep").mkdir()
            (folder / "deep" / "rows.txt").write_text(text)
            return {}

        made[text] = store.build("corpus", _INPUTS, write)[0]

    threads = [threading.Thread(target=build, args=pair) for pair in ((first, "first\n"), (second, "second\n"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    texts = {_read_rows(made["first\n"]), _read_rows(made["second\n"])}

    assert len(texts) == 1
    assert made["first\n"].manifest == made["second\n"].manifest
    assert made["first\n"].find_changed() == made["second\n"].find_changed() == ()
    assert _read_rows(_open_store(first.root.parent / "c", _find_url(first)).get("corpus", _KEY)) in texts


def _find_url(store: ArtifactStore) -> str:
    return store.documents.place("", "").rstrip("/")


def test_a_path_of_another_machine_is_found_locally(machines: tuple[ArtifactStore, ArtifactStore]) -> None:
    first, second = machines
    path = _build(first)[0].path / "deep" / "rows.txt"
    assert first.locate(path) == path
    path.rename(path.with_name("elsewhere"))  # each machine has its own disk

    assert second.locate(path) == second.root / "corpus" / _KEY / "deep" / "rows.txt"
    assert second.locate(path).read_text() == "hello\n"
    for other in (Path("/srv/rows.txt"), Path("/srv/..", "0" * 64, "rows.txt"), Path("/srv/corpus", "0" * 64)):
        assert second.locate(other) == other


def test_a_forced_build_replaces_the_artifact(
    machines: tuple[ArtifactStore, ArtifactStore], tmp_path: Path, store_url: str
) -> None:
    """For all machines: one that has the old artifact fetches the new one at its next build."""
    first, second = machines
    _build(first, "old\n")
    second.get("corpus", _KEY)
    made, was_there = _build(first, "new\n", again=True)

    assert not was_there
    assert _read_rows(made) == "new\n"
    assert _read_rows(_open_store(tmp_path / "c", store_url).get("corpus", _KEY)) == "new\n"
    fetched, was_there = _build(second, "never written")
    assert was_there
    assert _read_rows(fetched) == "new\n"


class _PowerFailure(BaseException):
    """Ends a process between two requests."""


def test_a_half_written_artifact_is_never_seen(
    machines: tuple[ArtifactStore, ArtifactStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are uploaded, its manifest is not; the next run on the same machine publishes it."""
    first, second = machines

    def fail(*_: object) -> bool:
        raise _PowerFailure

    with monkeypatch.context() as patched:
        patched.setattr(Remote, "swap", fail)
        with pytest.raises(_PowerFailure):
            _build(first)
    there = {item["path"].rpartition("/")[2] for batch in obstore.list(from_url(_find_url(first))) for item in batch}
    assert _hash_line("hello") in there
    assert MANIFEST not in there
    assert second.get("corpus", _KEY) is None

    assert _build(first, "never written")[1]
    assert _read_rows(second.get("corpus", _KEY)) == "hello\n"


@pytest.mark.parametrize("content", [b"tampered\n", None])
def test_a_tampered_object_makes_the_artifact_absent(
    machines: tuple[ArtifactStore, ArtifactStore], tmp_path: Path, store_url: str, content: bytes | None
) -> None:
    first, second = machines
    _build(first)
    place = f"corpus/{_KEY}/{_hash_line('hello')}"
    if content is None:
        obstore.delete(from_url(store_url), place)
    else:
        obstore.put(from_url(store_url), place, content)
    assert second.get("corpus", _KEY) is None
    assert list((second.root / "corpus").iterdir()) == []
    made, was_there = _build(second)

    assert not was_there
    assert _read_rows(made) == "hello\n"
    assert _read_rows(_open_store(tmp_path / "c", store_url).get("corpus", _KEY)) == "hello\n"


def test_a_damaged_copy_is_fetched_again(machines: tuple[ArtifactStore, ArtifactStore]) -> None:
    first, second = machines
    _build(first)
    fetched = second.get("corpus", _KEY)
    assert fetched is not None
    (fetched.path / "deep" / "rows.txt").write_text("spoilt\n")
    again, was_there = _build(second, "never written")

    assert (_read_rows(again), was_there) == ("hello\n", True)


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
def test_an_invalid_manifest_makes_no_artifact(
    tmp_path: Path, store_url: str, change: dict[str, object] | None, where: str | None
) -> None:
    """Fetching writes only into the artifact's folder and requires digests; a local build replaces the artifact."""
    bucket, store = from_url(store_url), _open_store(tmp_path / "deep" / "store", store_url)
    manifest = {"kind": "corpus", "key": _KEY, "inputs": _INPUTS, "parents": [], "outputs": {}}
    content = b"[" if change is None else json.dumps({**manifest, **change}).encode()
    obstore.put(bucket, f"corpus/{_KEY}/{MANIFEST}", content)
    obstore.put(bucket, f"corpus/{_KEY}/{hashlib.sha256(b'x').hexdigest()}", b"x")

    assert store.get("corpus", _KEY) is None
    assert where is None or not list(tmp_path.rglob(f"*{where}*"))
    assert not Path("/tmp/mens-evil").exists()  # noqa: S108
    assert _read_rows(_build(store)[0]) == "hello\n"
    assert _read_rows(_open_store(tmp_path / "b", store_url).get("corpus", _KEY)) == "hello\n"


def test_a_damaged_artifact_published_meanwhile_is_replaced(
    machines: tuple[ArtifactStore, ArtifactStore], tmp_path: Path, store_url: str
) -> None:
    """The manifest of another writer names a missing file, so the local artifact replaces it."""
    first, second = machines

    def write(folder: Path) -> dict[str, int]:
        _build(second, "theirs\n")
        obstore.delete(from_url(store_url), f"corpus/{_KEY}/{_hash_line('theirs')}")
        (folder / "deep").mkdir()
        (folder / "deep" / "rows.txt").write_text("ours\n")
        return {}

    assert _read_rows(first.build("corpus", _INPUTS, write)[0]) == "ours\n"
    assert _read_rows(_open_store(tmp_path / "c", store_url).get("corpus", _KEY)) == "ours\n"


def test_an_unreachable_server_is_reported_in_one_line(
    machines: tuple[ArtifactStore, ArtifactStore], monkeypatch: pytest.MonkeyPatch, store_url: str
) -> None:
    """With advice; local artifacts can still be read."""
    monkeypatch.setattr(remote_module, "_RETRY_SECONDS", 1.0)
    made, _ = _build(machines[0])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{probe.getsockname()[1]}")
    alone = _open_store(machines[0].root, store_url)

    assert alone.get("corpus", _KEY) == made
    with pytest.raises(ConfigurationError, match="Make sure that MENS_STORE_URL names an existing bucket") as details:
        _build(alone)
    assert "\n" not in str(details.value)
    assert str(details.value).startswith(f"{store_url}/corpus/{_KEY}/{MANIFEST}: Generic S3 error")


@pytest.mark.slow
def test_a_restart_of_the_server_fails_no_run(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are retried until it is back; four retries were over within a second."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _NoBucket, bind_and_activate=False) as server:
        server.server_bind()
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        store = _open_store(tmp_path, store_url)

        def begin() -> None:
            server.server_activate()
            server.serve_forever(0.01)

        threading.Timer(2.0, begin).start()
        assert store.documents.read("k", "latest") == b""
        server.shutdown()


class _NoBucket(BaseHTTPRequestHandler):
    """Answers like S3 if the bucket does not exist; SeaweedFS would create it."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_missing_bucket_is_reported(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _NoBucket) as server:
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        store = _open_store(tmp_path, store_url)
        with pytest.raises(ConfigurationError, match="names an existing bucket"):
            _build(store)
        with pytest.raises(ConfigurationError, match=r"k/latest: Object at location .* names an existing bucket"):
            store.documents.amend("k", "latest", lambda _found: b"x")
        assert not Remote(store_url).swap("k/latest", b"x", {"e_tag": "of one that is gone"})
        server.shutdown()

    assert _read_rows(ArtifactStore(tmp_path).get("corpus", _KEY)) == "hello\n"


def test_unknown_credentials_are_reported(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    with pytest.raises(ConfigurationError, match="credentials of this process allow reads and writes") as details:
        _build(_open_store(tmp_path, store_url))
    assert "another-secret" not in str(details.value)
    with pytest.raises(ConfigurationError, match=r"az://account/x: .*Account must be specified"):
        Remote("az://account/x")
    assert not (tmp_path / "corpus").exists()


def test_remote_artifacts_are_listed_and_deleted(machines: tuple[ArtifactStore, ArtifactStore], store_url: str) -> None:
    """Sizes include all files; an artifact without a manifest is incomplete, and pointers are not listed."""
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


def test_a_reused_artifact_gets_a_new_modification_time(
    machines: tuple[ArtifactStore, ArtifactStore], store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _build(machines[0])
    remote = Remote(store_url)
    before = remote.list_artifacts()[0].modified
    time.sleep(1.1)  # servers round to whole seconds
    assert _build(machines[1])[1] is True
    assert remote.list_artifacts()[0].modified == before
    monkeypatch.setattr(remote_module, "_RENEWED_AFTER", timedelta(0))
    assert _build(machines[1])[1] is True

    assert remote.list_artifacts()[0].modified > before
