"""A tree of files from outside."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.pipeline_config import WatchPolicy
from mens_pipeline.corpus.extract import watch
from mens_pipeline.corpus.extract.sources import PAGE_SUFFIXES, VOX_SUFFIXES
from mens_pipeline.corpus.extract.watch import WatchedState, sight
from mens_pipeline.errors import RefusedError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace of a program, a page and what counts for neither."""
    for name in ("a.vox", "docs/p.md", "target/t.vox", ".git/g.vox", "heldout_bench/b.vox", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("one\n")
    return tmp_path


@pytest.mark.seed_row(71)
@pytest.mark.parametrize(
    ("path", "programs", "pages"),
    [
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
    ],
)
def test_which_paths_count(root: Path, path: str, *, programs: bool, pages: bool) -> None:
    """Programs and pages of the workspace, and nothing that never trains."""

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
def test_what_is_a_change(root: Path, change: Callable[[Path], object]) -> None:
    """Names and times, and it is undone by undoing it."""
    before = sight(root, VOX_SUFFIXES, 100)
    change(root)

    assert sight(root, VOX_SUFFIXES, 100).fingerprint != before.fingerprint


def test_the_same_tree_is_seen_the_same_way(root: Path) -> None:
    """Reading a file is no change."""
    before = sight(root, VOX_SUFFIXES, 100)
    (root / "a.vox").read_bytes()

    assert sight(root, VOX_SUFFIXES, 100) == before
    assert before.num_files == 1


def test_too_many_files_are_refused(root: Path) -> None:
    """As many as allowed are not too many."""
    (root / "b.vox").touch()
    assert sight(root, VOX_SUFFIXES, 2).num_files == 2

    with pytest.raises(RefusedError, match=r"more than 1 files that end in \.vox, \.vox\.ui"):
        sight(root, VOX_SUFFIXES, 1)


def test_a_file_that_vanishes_meanwhile_is_no_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed and cannot be looked at: another fingerprint, and the next look sees it gone."""
    before = sight(root, VOX_SUFFIXES, 100)
    monkeypatch.setattr(watch, "files_below", lambda *_: iter([root / "a.vox", root / "gone.vox"]))
    seen = sight(root, VOX_SUFFIXES, 100)

    assert seen.fingerprint != before.fingerprint
    assert seen.touched == before.touched


def test_unpacking_old_files_is_touching_them(root: Path) -> None:
    """Their content is of long ago; they came just now."""
    os.utime(root / "a.vox", (1, 1))

    assert sight(root, VOX_SUFFIXES, 100).touched > 1_700_000_000


@pytest.mark.parametrize(
    ("touched", "settled"),
    [(69.0, True), (70.0, True), (70.5, False), (100.0, False), (100.5, True), (0.0, True)],
    ids=["long ago", "just long enough", "too recent", "now", "in time to come", "no files"],
)
def test_a_tree_settles(touched: float, *, settled: bool) -> None:
    """Thirty seconds without a touch; a clock that was wrong does not hold it up for ever."""
    assert WatchedState("f", 1, touched).is_settled(now=100.0, seconds=30.0) is settled


def test_paths_that_do_not_count_are_passed_over(root: Path) -> None:
    """Neither their number nor their time counts."""
    assert sight(root, VOX_SUFFIXES, 0, lambda path: path != "a.vox") == sight(root / "docs", VOX_SUFFIXES, 100)


@pytest.mark.seed_row(71)
@pytest.mark.parametrize(
    ("path", "is_run"),
    [("a.vox", True), ("x/a.vox", True), ("docs/src/x/p.md", True), ("docs/p.md", False), ("p.md", False)],
)
def test_patterns_say_which_paths_count(path: str, *, is_run: bool) -> None:
    """Upstream's rule."""
    assert WatchPolicy(paths=("*.vox", "docs/src/*")).counts(path) is is_run
