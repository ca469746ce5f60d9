"""Untrusted files: only regular files are opened, and no more than a bound is read."""

import errno
import os
from pathlib import Path

import pytest

from mens_pipeline.errors import ConfigurationError, DiskError
from mens_pipeline.storage.files import (
    copy_folder,
    disk_error,
    find_little_room,
    is_full,
    is_out_of_place,
    named_errors,
    open_regular,
    read_regular,
)
from mens_pipeline_tests.corpus.full_disk import full_after


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")

    assert read_regular(tmp_path / "a", 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(tmp_path / "a", 4)


def test_no_link_is_followed_below_a_folder(tmp_path: Path) -> None:
    """In no part of a path, and no handle stays open; links above the folder are followed."""
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    (tmp_path / "root" / "a" / "b" / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("root")
    (tmp_path / "root" / "link").symlink_to("a")
    (tmp_path / "root" / "a" / "b" / "link").symlink_to("file")
    num_open = len([*Path("/dev/fd").iterdir()])

    for root in (tmp_path / "root", tmp_path / "link"):
        assert read_regular(root / "a" / "b" / "file", 9, below=root) == b"x"
        for name in ("link/b/file", "a/b/link", "a/c/file", "a/b/file/file"):
            with pytest.raises(OSError, match=r"symbolic|directory"):
                read_regular(root / name, 9, below=root)
    assert len([*Path("/dev/fd").iterdir()]) == num_open


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    """Opening a pipe or a device does not block."""
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")

    with open_regular(tmp_path / "link") as content:
        assert content.read() == b"x"
    for path, below, code in (
        (tmp_path, None, errno.EISDIR),
        (tmp_path / "pipe", None, errno.EINVAL),
        (Path("/dev/null"), None, errno.EINVAL),
        (tmp_path / "link", tmp_path, errno.ELOOP),
        (tmp_path / "none", None, errno.ENOENT),
    ):
        with pytest.raises(OSError, match=r".") as refusal:
            open_regular(path, below=below)
        assert (refusal.value.errno, bool(refusal.value.strerror)) == (code, True)
    assert [is_out_of_place(path) for path in (tmp_path / "none", tmp_path, Path("/dev/null"))] == [False, False, True]


def test_an_error_without_a_file_name_gets_one(tmp_path: Path) -> None:
    for fail, named in ((os.utime, str(tmp_path)), (os.unlink, None)):
        with pytest.raises(FileNotFoundError) as failure, named_errors(tmp_path):
            fail(tmp_path / "none")
        assert failure.value.filename2 == named


def test_a_nearly_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first nearly full place is named; a missing folder is on the disk of its parent."""
    checked: list[Path] = []

    def measure(place: Path) -> tuple[int, int, int]:
        checked.append(place)
        return (100_000_000_000, 0, 4_000_000_000 if len(checked) > 1 else 6_000_000_000)

    monkeypatch.setattr("mens_pipeline.storage.files.shutil.disk_usage", measure)
    problem = find_little_room(tmp_path, tmp_path / "new" / "home")

    assert problem is not None
    assert problem.startswith(f"{tmp_path / 'new' / 'home'}: 4.0 GB of 100.0 GB are free. Make room: ")
    assert checked == [tmp_path, tmp_path]
    checked.clear()
    assert find_little_room(tmp_path) is None


def test_a_failed_copy_of_a_folder_raises_the_error_of_the_disk(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a").write_text("a" * 2000)
    (source / "link").symlink_to("deep/a")
    target.mkdir()
    (target / "old").write_text("old")
    with full_after(1000), pytest.raises(OSError, match="File too large") as failed:
        copy_folder(source, target)
    assert is_full(failed.value)
    copy_folder(source, target)

    assert (target / "deep" / "a").read_text() == "a" * 2000
    assert (target / "link").is_symlink()
    assert (target / "old").read_text() == "old"


def test_errors_of_the_disk_are_distinguished_from_errors_of_configuration(tmp_path: Path) -> None:
    read_only = OSError(errno.EROFS, "Read-only file system", "a")

    assert type(disk_error(OSError(errno.EACCES, "Permission denied", "a"), tmp_path, "Do.")) is ConfigurationError
    assert str(disk_error(read_only, tmp_path, "Do.")) == "a: Read-only file system. Do."
    assert isinstance(disk_error(read_only, tmp_path, "Do."), DiskError)
    assert str(disk_error(read_only, "file", "Do.", is_named=True)) == "file: Read-only file system. Do."
