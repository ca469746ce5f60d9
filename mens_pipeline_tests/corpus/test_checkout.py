"""The git commit of a folder, or none."""

import os
import subprocess
from pathlib import Path

import pytest

from mens_pipeline.corpus.extract import checkout
from mens_pipeline.corpus.extract.checkout import commit_of, head_commit

_GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")


def _git(folder: Path, *words: str) -> str:
    return subprocess.run([*_GIT, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_the_newest_change_is_that_of_a_program_or_a_page(tmp_path: Path) -> None:
    """None outside a checkout, and before the first commit of a program or a page; other commits do not count."""
    assert commit_of(tmp_path) is None
    _git(tmp_path, "init", "-q")
    assert commit_of(tmp_path) is None
    _git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    assert commit_of(tmp_path) is None
    (tmp_path / "page.md").write_text("# Page")
    _git(tmp_path, "add", "-A")
    _git(tmp_path, "commit", "-q", "-m", "y")
    of_page = _git(tmp_path, "rev-parse", "HEAD")
    _git(tmp_path, "commit", "-q", "--allow-empty", "-m", "z")

    assert commit_of(tmp_path) == of_page


def test_the_head_is_the_commit_that_is_checked_out(tmp_path: Path) -> None:
    """Whatever it changed, and asked from any folder of the checkout; None outside one and before the first commit."""
    assert head_commit(tmp_path) is None
    assert head_commit(tmp_path / "nowhere") is None
    _git(tmp_path, "init", "-q")
    assert head_commit(tmp_path) is None
    heads = []
    for message in ("x", "y"):
        _git(tmp_path, "commit", "-q", "--allow-empty", "-m", message)
        heads.append(head_commit(tmp_path))

    assert heads == _git(tmp_path, "log", "--reverse", "--format=%H").split()
    (tmp_path / "below").mkdir()
    assert head_commit(tmp_path / "below") == heads[-1]
    _git(tmp_path, "checkout", "-q", "--detach", "HEAD~1")
    assert head_commit(tmp_path) == heads[0]


def test_a_checkout_that_keeps_git_waiting_has_no_commit(tmp_path: Path) -> None:
    """A pipe where git looks for a file."""
    _git(tmp_path, "init", "-q")
    (tmp_path / ".git" / "HEAD").unlink()
    os.mkfifo(tmp_path / ".git" / "HEAD")

    assert checkout._told(tmp_path, ("rev-parse", "HEAD"), most_seconds=1) is None  # noqa: SLF001 - the limit is 30 s


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no error: a workspace need be no checkout."""
    _git(tmp_path, "init", "-q")
    (tmp_path / "page.md").write_text("# Page")
    _git(tmp_path, "add", "-A")
    _git(tmp_path, "commit", "-q", "-m", "x")
    assert commit_of(tmp_path)
    monkeypatch.setenv("PATH", "")

    assert commit_of(tmp_path) is None
    assert head_commit(tmp_path) is None
