"""The files of a workspace, and a hash over them."""

import shutil
from pathlib import Path

import pytest

from mens_pipeline.corpus.extract.sources import tree_fingerprint, vox_files
from mens_pipeline.errors import SourceNotFoundError


def _fill(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// {path.name}\n")


def _found(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in vox_files(root)]


def _fingerprint(root: Path) -> str:
    return tree_fingerprint(root, vox_files(root))


def test_programs_are_found_in_order(tmp_path: Path) -> None:
    """Both suffixes, every depth, sorted folder by folder."""
    _fill(tmp_path, "b.vox", "a.vox", "z/c.vox.ui", "d/e/f.vox", "notes.md", "x.voxel")

    assert _found(tmp_path) == ["a.vox", "b.vox", "d/e/f.vox", "z/c.vox.ui"]


def test_hidden_build_benchmark_and_linked_files_are_left_out(tmp_path: Path) -> None:
    """What is no source of the workspace is not read, and no link leads out of it."""
    _fill(tmp_path, "a.vox", ".git/b.vox", "node_modules/c.vox", "target/d.vox", "x.vox/inner.vox")
    _fill(tmp_path, "mens/data/heldout_bench/solutions/fn_add.vox")
    (tmp_path / "link.vox").symlink_to(tmp_path / "a.vox")
    (tmp_path / "linked").symlink_to(tmp_path / "x.vox")

    assert _found(tmp_path) == ["a.vox", "x.vox/inner.vox"]


def test_a_single_file_is_taken_whatever_its_name(tmp_path: Path) -> None:
    """Who names a file means it."""
    _fill(tmp_path, "program.txt")

    assert list(vox_files(tmp_path / "program.txt")) == [tmp_path / "program.txt"]


def test_nothing_there_is_an_error(tmp_path: Path) -> None:
    """A missing folder is never an empty one."""
    with pytest.raises(SourceNotFoundError, match="Name an existing one"):
        list(vox_files(tmp_path / "nowhere"))


def test_the_fingerprint_moves_with_content_and_names(tmp_path: Path) -> None:
    """An edit, a rename and a new file change it; the same tree elsewhere has the same."""
    first, second = tmp_path / "first", tmp_path / "second"
    _fill(first, "a.vox", "b/c.vox")
    _fill(second, "a.vox", "b/c.vox")
    before = _fingerprint(first)

    assert _fingerprint(second) == before
    (second / "a.vox").write_text("let x = 1\n")
    assert _fingerprint(second) != before
    (first / "a.vox").rename(first / "d.vox")
    assert _fingerprint(first) != before


def test_a_folder_that_cannot_be_listed_is_not_passed_over(tmp_path: Path) -> None:
    """It is given itself, so that reading it fails where someone counts."""
    _fill(tmp_path, "a.vox", "gone/b.vox", "there/c.vox")
    files = vox_files(tmp_path)
    first = next(files)
    shutil.rmtree(tmp_path / "gone")  # after it was seen, before it is listed

    assert [first, *files] == [tmp_path / name for name in ("a.vox", "there/c.vox", "gone")]
