"""Files of strangers: opened if they are files, and read no further than they should be."""

import errno
import os
from pathlib import Path

import pytest

from mens_pipeline.storage.files import is_out_of_place, open_regular, read_regular


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    """One byte more is one too many."""
    (tmp_path / "a").write_bytes(b"12345")

    assert read_regular(tmp_path / "a", 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(tmp_path / "a", 4)


def test_nothing_else_is_opened(tmp_path: Path) -> None:
    """A folder says what it is; a pipe, a device and a link that is not wanted do not wait."""
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")

    with open_regular(tmp_path / "link") as content:
        assert content.read() == b"x"
    for path, follow, code in (
        (tmp_path, True, errno.EISDIR),
        (tmp_path / "pipe", True, errno.EINVAL),
        (Path("/dev/null"), True, errno.EINVAL),
        (tmp_path / "link", False, errno.ELOOP),
        (tmp_path / "none", True, errno.ENOENT),
    ):
        with pytest.raises(OSError, match=r".") as refusal:
            open_regular(path, follow=follow)
        assert (refusal.value.errno, bool(refusal.value.strerror)) == (code, True)


def test_what_is_gone_is_not_out_of_place(tmp_path: Path) -> None:
    """Whoever reads it says that it is gone."""
    assert not is_out_of_place(tmp_path / "none")
    assert not is_out_of_place(tmp_path)
    assert is_out_of_place(Path("/dev/null"))
