"""What a bucket holds, by kind and key, what is deleted there, and how old it is."""

import time
from datetime import timedelta
from pathlib import Path

import obstore
import pytest
from obstore.store import from_url

from mens_pipeline.storage import remote as remote_module
from mens_pipeline.storage.remote import Remote
from mens_pipeline.storage.store import MANIFEST, Artifact, ArtifactStore, key_of

_INPUTS = {"a": 1}
_KEY = key_of(_INPUTS)


def _built(store: ArtifactStore, text: str = "hello\n") -> tuple[Artifact, bool]:
    def write(folder: Path) -> dict[str, int]:
        (folder / "rows.txt").write_text(text)
        return {"num_rows": 1}

    return store.built("corpus", _INPUTS, write)


@pytest.fixture
def machines(tmp_path: Path, store_url: str) -> tuple[ArtifactStore, ArtifactStore]:
    """Two machines with folders of their own, and one bucket."""
    first, second = (ArtifactStore(tmp_path / name, Remote(store_url)) for name in "ab")
    return first, second


def test_what_lies_there_is_listed_by_key(machines: tuple[ArtifactStore, ArtifactStore], store_url: str) -> None:
    """With the sizes of all files; what has no manifest is not whole, and pointers are no artifacts."""
    made, _ = _built(machines[0])
    obstore.put(from_url(store_url), f"corpus/{'0' * 64}/{'1' * 64}", b"left")
    remote = Remote(store_url)
    left, whole = remote.listed()

    assert (left.key, left.num_bytes, left.is_whole) == ("0" * 64, 4, False)
    assert (whole.kind, whole.key, whole.is_whole) == ("corpus", made.key, True)
    sizes = sum(output["bytes"] for output in made.manifest["outputs"].values())
    assert whole.num_bytes == sizes + (made.path / MANIFEST).stat().st_size


def test_what_is_deleted_is_absent_for_all(machines: tuple[ArtifactStore, ArtifactStore], store_url: str) -> None:
    """Whoever needs it makes it anew."""
    first, second = machines
    _built(first)
    remote = Remote(store_url)
    remote.delete("corpus", _KEY)

    assert remote.listed() == []
    assert second.get("corpus", _KEY) is None
    assert _built(second, "anew\n")[1] is False


def test_what_is_taken_up_is_young_again(
    machines: tuple[ArtifactStore, ArtifactStore], store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all machines, once an hour at most: what is old is deleted."""
    _built(machines[0])
    remote = Remote(store_url)
    before = remote.listed()[0].modified
    time.sleep(1.1)  # servers count whole seconds
    assert _built(machines[1])[1] is True
    assert remote.listed()[0].modified == before
    monkeypatch.setattr(remote_module, "_RENEWED_AFTER", timedelta(0))
    assert _built(machines[1])[1] is True

    assert remote.listed()[0].modified > before
