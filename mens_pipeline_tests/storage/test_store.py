"""The store: content-addressed, whole or absent."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.storage import documents
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.kinds import Kind, SplitFile
from mens_pipeline.storage.store import MANIFEST, ArtifactRef, ArtifactStore, Details, key_of
from mens_pipeline_tests.corpus.full_disk import full_after
from mens_pipeline_tests.waits import wait_until

_INPUTS = {"b": [1, 2], "a": "ä"}


def _fill(store: ArtifactStore, text: str = "hello\n") -> None:
    with store.writing("corpus", _INPUTS) as draft:
        (draft.path / "rows.txt").write_text(text)
        draft.extra = {"num_rows": 1}


def test_an_artifact_is_found_by_its_inputs(store: ArtifactStore) -> None:
    """The manifest holds the inputs, the outputs with their digests, and fields that the writer added."""
    assert store.find("corpus", _INPUTS) is None
    _fill(store)
    found = store.find("corpus", dict(reversed(_INPUTS.items())))

    assert found is not None
    assert found.path == store.root / "corpus" / key_of(_INPUTS)
    assert found.manifest["inputs"] == _INPUTS
    assert found.manifest["num_rows"] == 1
    assert found.manifest["outputs"] == {
        "rows.txt": {"sha256": "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", "bytes": 6}
    }
    assert store.find("corpus", {**_INPUTS, "a": "b"}) is None
    assert (store.root / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")


def test_files_are_named_by_the_kind_of_their_artifact(store: ArtifactStore) -> None:
    """A stored artifact has its kind as plain text, since Dagster cannot store our enums."""
    with store.writing(Kind.HELDOUT_SPLIT, {}) as draft:
        (draft.path / SplitFile.HELDOUT).touch()
    found = store.find(Kind.HELDOUT_SPLIT, {})

    assert found is not None
    assert found.file(SplitFile.HELDOUT) == store.root / "heldout_split" / key_of({}) / "heldout.jsonl"
    assert found.file(SplitFile.HELDOUT).is_file()
    assert type(found.ref().kind) is str


class _Counts(Details):
    num_rows: int


def test_details_that_a_stage_adds_are_validated(store: ArtifactStore) -> None:
    made, _ = store.build("pairs", {"of": 1}, lambda _folder: {"num_rows": 3, "more": True})
    other, _ = store.build("pairs", {"of": 2}, lambda _folder: {})

    assert _Counts.of(made).num_rows == 3
    with pytest.raises(RefusedError, match=r"manifest\.json: num_rows: Field required\. Delete the folder"):
        _Counts.of(other)


def test_changed_outputs_are_named(store: ArtifactStore) -> None:
    _fill(store)
    found = store.find("corpus", _INPUTS)
    assert found is not None
    assert found.find_changed() == ()
    (found.path / "rows.txt").write_text("other\n")
    assert found.find_changed() == ("rows.txt",)
    (found.path / "rows.txt").unlink()
    assert found.find_changed() == ("rows.txt",)
    assert store.get("corpus", "../corpus") is None


def test_a_failure_leaves_nothing(store: ArtifactStore) -> None:
    def fail_half_way() -> None:
        with store.writing("corpus", _INPUTS) as draft:
            (draft.path / "rows.txt").write_text("half")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail_half_way()
    assert store.find("corpus", _INPUTS) is None
    assert list((store.root / "corpus").iterdir()) == []


@pytest.mark.seed_row(38)
def test_pointers_name_an_artifact(store: ArtifactStore) -> None:
    """`latest` is replaced, never half written."""
    assert store.read_pointer("corpus", "latest") is None
    _fill(store)
    found = store.find("corpus", _INPUTS)
    assert found is not None
    store.point("latest", found)
    store.point("latest", found)

    assert store.read_pointer("corpus", "latest") == key_of(_INPUTS)
    assert store.get("corpus", key_of(_INPUTS)) == found
    assert (store.latest("corpus"), store.latest("pairs")) == (found, None)


def test_an_unwritable_store_is_an_error(tmp_path: Path) -> None:
    """A file in place of its folder, or a folder in place of a pointer."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="Set MENS_STORE_ROOT"):
        ArtifactStore(tmp_path / "file").build("k", {}, lambda _folder: {})
    (tmp_path / "corpus" / "latest").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"latest: Is a directory\. Set MENS_STORE_ROOT"):
        ArtifactStore(tmp_path).build("corpus", _INPUTS, lambda _folder: {})
    assert sorted(path.name for path in (tmp_path / "corpus").iterdir()) == [key_of(_INPUTS), "latest"]


@pytest.mark.parametrize(
    "fill",
    [
        lambda folder: (folder / "rows.txt").write_text("a" * 10_000),
        lambda folder: [(folder / f"a-rather-long-name-{number}").touch() for number in range(20)],
        lambda folder: (folder / "missing" / "rows.txt").write_text("a"),
    ],
)
def test_a_full_store_is_an_error(store: ArtifactStore, fill: Callable[[Path], object]) -> None:
    """It is full within the block or at the manifest, or a folder is missing; nothing is left."""
    advice = r"(File too large|No such file or directory)\. Set MENS_STORE_ROOT to a writable folder with free space"

    with full_after(1024), pytest.raises(ConfigurationError, match=advice):
        store.build("corpus", _INPUTS, lambda folder: {"made": bool(fill(folder))})
    assert list((store.root / "corpus").iterdir()) == []


def test_other_errors_of_a_block_are_raised_unchanged(store: ArtifactStore, tmp_path: Path) -> None:
    """A file outside the store is missing, or too large to be read."""

    def read_missing(_folder: Path) -> dict[str, str]:
        return {"text": (tmp_path / "nowhere").read_text()}

    def read_too_large(_folder: Path) -> dict[str, int]:
        (tmp_path / "large").write_text("large")
        return {"bytes": len(read_regular(tmp_path / "large", 1))}

    with pytest.raises(FileNotFoundError, match="nowhere"):
        store.build("corpus", _INPUTS, read_missing)
    with pytest.raises(OSError, match="larger than 1 bytes"):
        store.build("corpus", _INPUTS, read_too_large)


def test_an_artifact_is_built_once_and_becomes_the_latest(store: ArtifactStore) -> None:
    written = []

    def write(folder: Path) -> dict[str, int]:
        written.append(folder)
        (folder / "rows.txt").write_text(f"{len(written)}\n")
        return {"num_rows": 1}

    first, was_there = store.build("corpus", _INPUTS, write)
    other, _ = store.build("corpus", {"a": 1}, write)
    assert store.read_pointer("corpus", "latest") == other.key
    again, is_there = store.build("corpus", _INPUTS, write)

    assert (was_there, is_there) == (False, True)
    assert again == first
    assert first.manifest["num_rows"] == 1
    assert store.read_pointer("corpus", "latest") == first.key
    assert len(written) == 2
    made, was_there = store.build("corpus", _INPUTS, write, again=True)
    assert (was_there, (made.path / "rows.txt").read_text()) == (False, "3\n")
    assert store.find("corpus", _INPUTS) == made


def test_rewriting_the_same_outputs_keeps_the_folder(store: ArtifactStore) -> None:
    """A folder without a manifest is replaced."""
    made = store.root / "corpus" / key_of(_INPUTS)
    made.mkdir(parents=True)
    (made / "rows.txt").write_text("half")
    assert store.find("corpus", _INPUTS) is None
    _fill(store)
    before, manifest = made.stat().st_ino, (made / MANIFEST).read_bytes()
    _fill(store)
    assert (made / "rows.txt").read_text() == "hello\n"
    assert made.stat().st_ino == before
    other = ArtifactStore(store.root / "other")
    _fill(other)

    assert (other.root / "corpus" / made.name / MANIFEST).read_bytes() == manifest
    assert sorted(path.name for path in (store.root / "corpus").iterdir()) == [key_of(_INPUTS)]


@pytest.mark.parametrize("spoil", [lambda path: path.write_text("x\n"), Path.unlink])
def test_a_damaged_artifact_is_built_again(store: ArtifactStore, spoil: Callable[[Path], object]) -> None:
    """A file has changed or is gone; an intact artifact is checked once per process."""
    numbers = iter(range(9))

    def write(folder: Path) -> dict[str, int]:
        (folder / "rows.txt").write_text(f"{next(numbers)}\n")
        return {}

    made, _ = store.build("corpus", _INPUTS, write)
    spoil(made.path / "rows.txt")
    assert made.find_changed() == ("rows.txt",)
    again, was_there = store.build("corpus", _INPUTS, write)

    assert not was_there
    assert (again.path / "rows.txt").read_text() == "1\n"
    assert store.build("corpus", _INPUTS, write) == (again, True)
    spoil(made.path / "rows.txt")
    assert store.build("corpus", _INPUTS, write) == (again, True)


def test_an_artifact_of_newer_code_asks_for_an_upgrade(store: ArtifactStore) -> None:
    """It does not count as damaged and is not replaced; an artifact without a version is of the first."""
    _fill(store)
    (path,) = store.root.glob(f"*/*/{MANIFEST}")
    kind, key = path.parts[-3:-1]
    manifest = json.loads(path.read_text())
    assert manifest.pop("format_version") == 1
    path.write_text(json.dumps(manifest))
    assert store.get(kind, key) is not None
    path.write_text(json.dumps(manifest | {"format_version": 2}))

    with pytest.raises(RefusedError, match=rf"{MANIFEST}: written by a newer version .*Upgrade it\.$"):
        store.get(kind, key)


def test_a_manifest_names_parents(store: ArtifactStore) -> None:
    _fill(store)
    (parent,) = store.holding(store.root / "corpus" / key_of(_INPUTS) / "rows.txt", store.root / "corpus", store.root)
    child, _ = store.build("pairs", {}, lambda _folder: {}, [parent])

    assert store.holding(parent.path, parent.path / "rows.txt", store.root.parent, child.path) == (parent, child)
    assert child.parents == (ArtifactRef("corpus", parent.key),)
    assert parent.parents == ()
    assert child.data_version != store.build("pairs", {"a": 1}, lambda _folder: {})[0].data_version


def test_a_reference_names_its_ancestors(store: ArtifactStore) -> None:
    far, near = ArtifactRef("corpus", "far"), ArtifactRef("corpus", "near")
    pairs = ArtifactRef("pairs", "p", (ArtifactRef("synthetic", "s", (far,)), near))

    assert pairs.of("corpus") == near
    assert pairs.of("pairs") == pairs
    assert ArtifactRef.from_json(pairs.as_json()) == pairs
    with pytest.raises(LookupError, match="pairs p: rests on no adapter"):
        pairs.of("adapter")
    _fill(store)
    made = store.find("corpus", _INPUTS)
    assert made is not None
    assert made.ref(far) == ArtifactRef("corpus", made.key, (far,))


def test_a_reused_artifact_gets_a_new_modification_time(store: ArtifactStore) -> None:
    made, _ = store.build("corpus", _INPUTS, lambda _folder: {})
    os.utime(made.path / MANIFEST, (0, 0))
    store.build("corpus", _INPUTS, lambda _folder: {})

    assert (made.path / MANIFEST).stat().st_mtime > 1


def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """By the next writer of the same kind; drafts in use, recent drafts and links are kept."""
    store = ArtifactStore(tmp_path)
    folder = tmp_path / "corpus"
    names = [f".draft-{name * 64}-{'1' * 32}" for name in "abc"]
    for name in names:
        (folder / name / "deep").mkdir(parents=True)
        (folder / name / "deep" / "rows.txt").write_text("half")
    for name in names[:2]:
        os.utime(folder / name, (0, 0))
    link = f".draft-link-{'1' * 32}"
    (folder / link).symlink_to(tmp_path)
    held = os.open(folder / names[1], os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with store.writing("corpus", _INPUTS) as draft:
        os.utime(draft.path, (0, 0))
        documents._LOOKED.clear()  # noqa: SLF001 - as if a minute had passed
        with store.writing("corpus", {"other": 1}):
            assert draft.path.is_dir()
    os.close(held)

    assert sorted(path.name for path in folder.glob(".draft-*")) == [*names[1:], link]
    assert tmp_path.is_dir()


def test_leftovers_of_a_killed_change_of_a_document_are_removed(tmp_path: Path) -> None:
    change = "Documents(pathlib.Path(sys.argv[1])).amend('corpus', 'latest', bytes)"
    die = "import os, pathlib, sys; os.fsync = lambda _file: os._exit(0)"
    code = f"{die}; from mens_pipeline.storage.documents import Documents; {change}"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    (left,) = (tmp_path / "corpus").iterdir()
    os.utime(left, (0, 0))
    documents.Documents(tmp_path).amend("corpus", "latest", bytes)

    assert [path.name for path in (tmp_path / "corpus").iterdir()] == ["latest"]


def test_waiting_for_a_lock_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a moment, with the file; a free lock is taken silently."""
    monkeypatch.setattr(documents, "_QUIET_SECONDS", 0.01)
    with documents.hold_lock(tmp_path / "lock"):
        waiter = threading.Thread(target=lambda: documents.hold_lock(tmp_path / "lock").__enter__())
        waiter.start()
        wait_until(lambda: bool(caplog.messages), 10)
    waiter.join(10)

    assert caplog.messages == [f"{tmp_path / 'lock'}: locked; waiting for the process that holds it."]


def test_a_file_system_without_locks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as some network drives, which no test can mount; at once, or after a wait."""
    for codes in ([errno.ENOLCK], [errno.EAGAIN, errno.ENOLCK]):
        answers = iter(codes)

        def refuse(*_arguments: object, answers: Iterator[int] = answers) -> None:
            code = next(answers)
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(fcntl, "flock", refuse)
        message = r"lock: its file system does not support locks \(No locks available\)\. Use"
        with pytest.raises(ConfigurationError, match=message), documents.hold_lock(tmp_path / "lock"):
            pass


def test_the_folder_of_a_kind_is_not_listed_for_each_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts of killed processes are searched for once a minute: listing thousands of folders is slow."""
    listed: list[Path] = []
    iterdir = Path.iterdir

    def list_folder(folder: Path) -> Iterator[Path]:
        listed.append(folder)
        return iterdir(folder)

    monkeypatch.setattr(Path, "iterdir", list_folder)
    store = ArtifactStore(tmp_path)
    for number in range(5):
        store.build("corpus", {"n": number}, lambda _folder: {})
    store.build("other", {}, lambda _folder: {})

    assert listed == [tmp_path / "corpus", tmp_path / "other"]


@pytest.mark.parametrize(
    "damage",
    [
        *[{"outputs": found} for found in (None, [1], {"a": 1}, {"a": {"bytes": 1}}, {"a": {"sha256": 1}})],
        *[{"parents": found} for found in (None, [1], [{"kind": "a"}], [{"kind": "a", "key": 1}])],
    ],
)
def test_a_manifest_without_digests_or_parents_makes_no_artifact(tmp_path: Path, damage: dict[str, object]) -> None:
    store = ArtifactStore(tmp_path)
    found, _ = store.build("corpus", _INPUTS, lambda folder: {"n": (folder / "rows.txt").write_text("whole")})
    (found.path / "manifest.json").write_text(json.dumps({**found.manifest, **damage}))

    assert store.find("corpus", _INPUTS) is None


def test_a_folder_that_is_held_is_not_abandoned(tmp_path: Path) -> None:
    """Until the last holder releases it; a link in its place is refused."""
    with documents.hold_folder(tmp_path):
        with documents.hold_folder(tmp_path):
            pass
        with pytest.raises(BlockingIOError), documents.lock_abandoned(tmp_path):
            pass
    with documents.lock_abandoned(tmp_path) as handle:
        assert os.fstat(handle).st_ino == tmp_path.stat().st_ino
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"symbolic link|Not a directory"), documents.lock_abandoned(tmp_path / "link"):
        pass
