"""The base of an adapter that was trained elsewhere: found by its digest, never by its path alone."""

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.delivery.merge import refuse_misfit
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.prepare import completion_fits, evaluated_model
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models import base as module
from mens_pipeline.models.adapter import MANIFEST, Adapter, TrainingManifest
from mens_pipeline.models.base import Base, digest_of_folder, find_recorded_base, look_in
from mens_pipeline.settings import load_settings
from mens_pipeline_tests.training.small_folder import write_folder


def _move(trained: Path, folder: Path) -> Path:
    """Copy a run as if from another machine: the path of its base does not exist here."""
    run = folder / "run"
    shutil.copytree(trained, run)
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["base_model"]["path"] = "/srv/another-machine/base"
    (run / MANIFEST).write_text(json.dumps(manifest))
    return run


def _read_base(trained: Path) -> Base:
    return TrainingManifest.read(trained / MANIFEST).base_model


@pytest.mark.parametrize("place", ["as-i-like", "hub/models--acme--base/snapshots/0123"])
def test_the_base_of_a_run_of_another_machine_is_found_in_the_cache(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """By evaluation, by the merge, and by the count of tokens."""
    run, here = _move(trained, tmp_path), tmp_path / "cache" / "base_models" / place
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    load_settings()
    adapter = Adapter.open(run)
    device = resolve_device(DeviceChoice.CPU)
    with pytest.raises(RefusedError, match=r"/srv/another-machine/base: the base model .* of this adapter is gone"):
        evaluated_model("adapter", adapter, device)
    shutil.copytree(_read_base(trained).path, here)

    assert evaluated_model("adapter", adapter, device).base_path == here
    assert completion_fits(adapter.manifest.base_model, Decoding())("fn f() { }")
    refuse_misfit(adapter)


def test_another_base_at_the_same_path_is_not_used(trained: Path, tiny_base: Path, tmp_path: Path) -> None:
    """Nor is a folder with unreadable weights."""
    cache, base = tmp_path / "base_models", _read_base(trained)
    look_in(cache)
    shutil.copytree(tiny_base, cache / "a")
    shutil.copytree(base.path, cache / "b")
    (cache / "b" / "model.safetensors").write_bytes(b"none")
    with pytest.raises(RefusedError, match="of this adapter is changed"):
        find_recorded_base(base.model_copy(update={"path": tiny_base}))
    shutil.copytree(base.path, cache / "c")

    assert find_recorded_base(base.model_copy(update={"path": tiny_base})) == cache / "c"
    assert find_recorded_base(base) == base.path


@pytest.fixture
def hashed_inodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Record the inodes of hashed files, with a cache, and on a disk with precise times."""
    inodes: list[int] = []
    file_digest = hashlib.file_digest

    def record(content: Any, name: str) -> Any:
        inodes.append(os.fstat(content.fileno()).st_ino)
        return file_digest(content, name)

    monkeypatch.setattr(hashlib, "file_digest", record)
    monkeypatch.setattr(module, "_SETTLED_NS", 10_000_000)
    look_in(tmp_path / "cache")
    return inodes


def _settle() -> None:
    time.sleep(0.05)


def test_an_evaluation_hashes_its_base_once_and_a_merge_again(
    trained: Path, tmp_path: Path, hashed_inodes: list[int]
) -> None:
    _move(trained, tmp_path)
    shutil.copytree(_read_base(trained).path, tmp_path / "cache" / "base")
    inode = (tmp_path / "cache" / "base" / "model.safetensors").stat().st_ino
    _settle()
    adapter, device = Adapter.open(tmp_path / "run"), resolve_device(DeviceChoice.CPU)
    for model in ("base", "adapter", "base"):
        evaluated_model(model, adapter, device)
    assert completion_fits(adapter.manifest.base_model, Decoding())("fn f() { }")
    assert hashed_inodes.count(inode) == 1

    refuse_misfit(adapter)
    assert hashed_inodes.count(inode) == 2


def test_every_change_of_a_file_invalidates_its_cached_digest(tmp_path: Path, hashed_inodes: list[int]) -> None:
    """Even in place, with the same size and mtime: that changes ctime, which cannot be set."""
    folder = write_folder(tmp_path / "base")
    file = folder / "model.safetensors"

    def change_in_place() -> None:
        before, content = file.stat(), file.read_bytes()
        with file.open("r+b") as target:
            target.write(bytes([content[0] ^ 1]))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = file.stat()
        assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)

    def replace() -> None:
        shutil.copy2(file, tmp_path / "other")
        (tmp_path / "other").replace(file)

    def corrupt_cache() -> None:
        for entry in (tmp_path / "cache" / "digests").iterdir():
            entry.write_bytes(b"\0" * 64)

    changes = {
        "nothing": lambda: None,
        "in place": change_in_place,
        "another file": replace,
        "one more": lambda: (folder / "more.txt").write_text("more"),
        "a broken cache": corrupt_cache,
    }
    for name, change in changes.items():
        _settle()
        digest_of_folder(folder)
        change()
        hashed_inodes.clear()
        assert digest_of_folder(folder) == digest_of_folder(folder, in_full=True), name
        assert hashed_inodes.count(file.stat().st_ino) == (1 if name == "nothing" else 2), name


def test_a_digest_is_not_cached_for_a_recent_file_or_in_an_unwritable_cache(
    tmp_path: Path, hashed_inodes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "base")
    monkeypatch.setattr(module, "_SETTLED_NS", 10**12)
    digest_of_folder(folder)
    monkeypatch.setattr(module, "_SETTLED_NS", 0)
    (tmp_path / "cache").write_text("not a folder")
    _settle()

    assert digest_of_folder(folder) == digest_of_folder(folder)
    assert len(hashed_inodes) == 9
