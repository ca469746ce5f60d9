"""Documents in object storage are replaced only if their newest version was read; on a real server."""

import threading
from pathlib import Path

import obstore
import pytest
from obstore.store import from_url

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.storage.remote import Remote
from mens_pipeline.storage.store import ArtifactStore


def test_documents_change_by_compare_and_swap(machines: tuple[ArtifactStore, ArtifactStore]) -> None:
    """A change of an outdated version is refused; lines that two machines add at once are both kept."""
    first, second = (store.documents for store in machines)
    first.replace("promoted", "champion", b"", b"one")
    with pytest.raises(RefusedError, match=r"/promoted/champion: changed meanwhile, perhaps on another machine\. Run"):
        second.replace("promoted", "champion", b"", b"two")
    assert second.read("promoted", "champion") == b"one"

    def add(line: bytes) -> None:
        for documents in (first, second):
            documents.amend("promoted", "history.jsonl", lambda found: found + line)

    threads = [threading.Thread(target=add, args=(b"%d\n" % number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    lines = first.read("promoted", "history.jsonl").split()
    assert sorted(lines) == sorted([b"0", b"1", b"2", b"3"] * 2)


def test_a_write_based_on_a_stale_version_is_refused(store_url: str) -> None:
    """The server itself refuses it if the document exists, has changed, or is gone."""
    remote = Remote(store_url)
    assert remote.swap("k/latest", b"one", None)
    assert not remote.swap("k/latest", b"two", None)
    seen = remote.read("k/latest")
    assert remote.swap("k/latest", b"two", seen.version)
    assert not remote.swap("k/latest", b"three", seen.version)
    now = remote.read("k/latest")
    assert now.content == b"two"
    obstore.delete(from_url(store_url), "k/latest")
    assert not remote.swap("k/latest", b"four", now.version)
    assert remote.read("k/latest").content == b""


def test_a_writer_gives_up_after_50_conflicts(store_url: str, tmp_path: Path) -> None:
    store, remote = ArtifactStore(tmp_path, Remote(store_url)), Remote(store_url)

    def outrun(found: bytes) -> bytes:
        assert remote.swap("k/lines", found + b"x", remote.read("k/lines").version)
        return b"never"

    with pytest.raises(
        ConfigurationError, match=r"k/lines: changed elsewhere 50 times in a row\. Run the command again"
    ):
        store.documents.amend("k", "lines", outrun)

    def lose_response(found: bytes) -> bytes:
        assert remote.swap("k/other", found + b"x", remote.read("k/other").version)
        return found + b"x"

    store.documents.amend("k", "other", lose_response)
    assert store.documents.read("k", "other") == b"x"


def test_a_document_that_is_too_large_is_refused(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mens_pipeline.storage.remote._MOST_BYTES", 3)
    obstore.put(from_url(store_url), "k/latest", b"four")

    with pytest.raises(ConfigurationError, match=r"k/latest: larger than 3 bytes\. Use another folder\."):
        Remote(store_url).read("k/latest")
