"""The files of a workspace, and a hash over them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.pipeline_config import WatchPolicy
from mens_pipeline.corpus.extract import sources
from mens_pipeline.corpus.extract.git import head_commit
from mens_pipeline.corpus.extract.sources import (
    PAGE_SUFFIXES,
    VOX_SUFFIXES,
    WatchedState,
    find_newest_commit,
    sight,
    tree_fingerprint,
    vox_files,
)
from mens_pipeline.errors import RefusedError, SourceNotFoundError
from mens_pipeline_tests.corpus.checkouts import git
from mens_pipeline_tests.every import every_row


def _fill(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// {path.name}\n")


def _find(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in vox_files(root)]


def _fingerprint(root: Path) -> str:
    return tree_fingerprint(root, vox_files(root))


def test_programs_are_found_in_order(tmp_path: Path) -> None:
    _fill(tmp_path, "b.vox", "a.vox", "z/c.vox.ui", "d/e/f.vox", "notes.md", "x.voxel")

    assert _find(tmp_path) == ["a.vox", "b.vox", "d/e/f.vox", "z/c.vox.ui"]


def test_hidden_build_benchmark_and_linked_files_are_left_out(tmp_path: Path) -> None:
    _fill(tmp_path, "a.vox", ".git/b.vox", "node_modules/c.vox", "target/d.vox", "x.vox/inner.vox")
    _fill(tmp_path, "mens/data/heldout_bench/solutions/fn_add.vox")
    (tmp_path / "link.vox").symlink_to(tmp_path / "a.vox")
    (tmp_path / "linked").symlink_to(tmp_path / "x.vox")

    assert _find(tmp_path) == ["a.vox", "x.vox/inner.vox"]


def test_a_single_file_may_have_any_name(tmp_path: Path) -> None:
    _fill(tmp_path, "program.txt")

    assert list(vox_files(tmp_path / "program.txt")) == [tmp_path / "program.txt"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="Name an existing one"):
        list(vox_files(tmp_path / "nowhere"))


def test_the_fingerprint_changes_with_content_and_names(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    _fill(first, "a.vox", "b/c.vox")
    _fill(second, "a.vox", "b/c.vox")
    before = _fingerprint(first)

    assert _fingerprint(second) == before
    (second / "a.vox").write_text("let x = 1\n")
    assert _fingerprint(second) != before
    (first / "a.vox").rename(first / "d.vox")
    assert _fingerprint(first) != before


def test_a_folder_that_cannot_be_listed_is_returned_itself(tmp_path: Path) -> None:
    """Its caller counts it as unreadable."""
    _fill(tmp_path, "a.vox", "gone/b.vox", "there/c.vox")
    files = vox_files(tmp_path)
    first = next(files)
    shutil.rmtree(tmp_path / "gone")  # after it was seen, before it is listed

    assert [first, *files] == [tmp_path / name for name in ("a.vox", "there/c.vox", "gone")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace of a program, a page and what counts for neither."""
    for name in ("a.vox", "docs/p.md", "target/t.vox", ".git/g.vox", "heldout_bench/b.vox", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("one\n")
    return tmp_path


@pytest.mark.seed_row(71)
@every_row(
    ("a.vox", True, False),
    ("new.vox", True, False),
    ("new.vox.ui", True, False),
    ("docs/p.md", False, True),
    ("docs/new/deep.md", False, True),
    ("docs/example.vox", True, False),
    ("notes.txt", False, False),
    ("target/t.vox", False, False),
    (".git/g.vox", False, False),
    ("heldout_bench/b.vox", False, False),
)
def test_only_paths_of_programs_and_pages_count(path: str, *, programs: bool, pages: bool, root: Path) -> None:
    def look() -> tuple[str, str]:
        return sight(root, VOX_SUFFIXES, 100).fingerprint, sight(root, PAGE_SUFFIXES, 100).fingerprint

    before = look()
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text("changed\n")
    after = look()

    assert (before[0] != after[0], before[1] != after[1]) == (programs, pages)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "a.vox").unlink(),
        lambda root: (root / "a.vox").rename(root / "b.vox"),
        lambda root: os.utime(root / "a.vox", (1, 1)),
    ],
    ids=["removed", "renamed", "another time"],
)
def test_every_change_of_a_file_is_noticed(root: Path, change: Callable[[Path], object]) -> None:
    before = sight(root, VOX_SUFFIXES, 100)
    change(root)

    assert sight(root, VOX_SUFFIXES, 100).fingerprint != before.fingerprint


def test_reading_a_file_is_not_a_change(root: Path) -> None:
    before = sight(root, VOX_SUFFIXES, 100)
    (root / "a.vox").read_bytes()

    assert sight(root, VOX_SUFFIXES, 100) == before
    assert before.num_files == 1


def test_too_many_files_are_refused(root: Path) -> None:
    (root / "b.vox").touch()
    assert sight(root, VOX_SUFFIXES, 2).num_files == 2

    with pytest.raises(RefusedError, match=r"more than 1 files that end in \.vox, \.vox\.ui"):
        sight(root, VOX_SUFFIXES, 1)


def test_a_file_may_be_deleted_meanwhile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed and cannot be read, so the fingerprint changes."""
    before = sight(root, VOX_SUFFIXES, 100)
    monkeypatch.setattr(sources, "files_below", lambda *_: iter([root / "a.vox", root / "gone.vox"]))
    seen = sight(root, VOX_SUFFIXES, 100)

    assert seen.fingerprint != before.fingerprint
    assert seen.touched == before.touched


def test_old_files_that_are_unpacked_count_as_touched(root: Path) -> None:
    os.utime(root / "a.vox", (1, 1))

    assert sight(root, VOX_SUFFIXES, 100).touched > 1_700_000_000


@pytest.mark.parametrize(
    ("touched", "settled"),
    [(69.0, True), (70.0, True), (70.5, False), (100.0, False), (100.5, True), (0.0, True)],
    ids=["long ago", "just long enough", "too recent", "now", "in the future", "no files"],
)
def test_a_tree_settles(touched: float, *, settled: bool) -> None:
    assert WatchedState("f", 1, touched).is_settled(now=100.0, seconds=30.0) is settled


def test_paths_that_do_not_count_are_skipped(root: Path) -> None:
    assert sight(root, VOX_SUFFIXES, 0, lambda path: path != "a.vox") == sight(root / "docs", VOX_SUFFIXES, 100)


@pytest.mark.seed_row(71)
@pytest.mark.parametrize(
    ("path", "is_run"),
    [("a.vox", True), ("x/a.vox", True), ("docs/src/x/p.md", True), ("docs/p.md", False), ("p.md", False)],
)
def test_patterns_select_paths(path: str, *, is_run: bool) -> None:
    """Upstream's rule."""
    assert WatchPolicy(paths=("*.vox", "docs/src/*")).counts(path) is is_run


def test_the_newest_commit_is_that_of_a_program_or_a_page(tmp_path: Path) -> None:
    assert find_newest_commit(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert find_newest_commit(tmp_path) is None
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    assert find_newest_commit(tmp_path) is None
    (tmp_path / "page.md").write_text("# Page")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "y")
    of_page = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "z")

    assert find_newest_commit(tmp_path) == of_page


def test_the_head_is_the_commit_that_is_checked_out(tmp_path: Path) -> None:
    assert head_commit(tmp_path) is None
    assert head_commit(tmp_path / "nowhere") is None
    git(tmp_path, "init", "-q")
    assert head_commit(tmp_path) is None
    heads = []
    for message in ("x", "y"):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", message)
        heads.append(head_commit(tmp_path))

    assert heads == git(tmp_path, "log", "--reverse", "--format=%H").split()
    (tmp_path / "below").mkdir()
    assert head_commit(tmp_path / "below") == heads[-1]
    git(tmp_path, "checkout", "-q", "--detach", "HEAD~1")
    assert head_commit(tmp_path) == heads[0]


def test_the_repository_of_a_hook_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git passes hooks the path of their repository; the commit is that of the given folder."""
    for name in ("hooked", "workspace"):
        (tmp_path / name).mkdir()
        git(tmp_path / name, "init", "-q")
        git(tmp_path / name, "commit", "-q", "--allow-empty", "-m", name)
    own = git(tmp_path / "workspace", "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "hooked" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "hooked" / ".git" / "index"))

    assert git(tmp_path / "workspace", "rev-parse", "HEAD") != own
    assert head_commit(tmp_path / "workspace") == own
