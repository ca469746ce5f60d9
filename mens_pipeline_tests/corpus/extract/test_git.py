"""Files, attributes and origin of a checkout, and the message when git refuses."""

import os
from pathlib import Path

import pytest

from mens_pipeline.corpus.extract.git import (
    NO_GIT,
    ask_git,
    find_checkout,
    find_remote,
    head_commit,
    list_files,
    read_attributes,
    run_git,
)
from mens_pipeline.errors import RefusedError
from mens_pipeline_tests.corpus.checkouts import commit_all, git, make_checkout
from mens_pipeline_tests.every import every


def test_files_are_those_that_are_tracked_or_not_ignored(tmp_path: Path) -> None:
    make_checkout(tmp_path, {".gitignore": "*.log\n", "a.vox": "", "kept.log": "", "sub/ä b.vox": ""}, force=True)
    make_checkout(tmp_path / "other", {"o.vox": ""})
    (tmp_path / "left.log").touch()
    (tmp_path / "new.vox").touch()

    assert list_files(tmp_path) == {".gitignore", "a.vox", "kept.log", "sub/ä b.vox", "new.vox", "other"}


def test_files_without_attributes_are_left_out(tmp_path: Path) -> None:
    text = "a/* linguist-vendored\nb/* -linguist-vendored linguist-generated=true\nc/* linguist-generated=false\n"
    make_checkout(tmp_path, {".gitattributes": text})
    found = read_attributes(tmp_path, ["a/x.vox", "b/x.vox", "c/x.vox", "d/x.vox"])

    assert found == {"a/x.vox": (True, None), "b/x.vox": (False, True), "c/x.vox": (None, False)}
    assert read_attributes(tmp_path, []) == {}
    assert read_attributes(tmp_path / "nowhere", ["a"]) == {}


@every(
    "urls",
    [
        ("https://me:secret@example.org/a.git", "https://example.org/a.git"),
        ("https://secret@example.org/a?token=secret", "https://example.org/a"),
        ("git@example.org:a/b.git", "git@example.org:a/b.git"),
    ],
)
def test_the_remote_contains_no_secret(tmp_path: Path, urls: tuple[str, str]) -> None:
    git(tmp_path, "init", "-q")
    assert find_remote(tmp_path) is None
    git(tmp_path, "config", "remote.origin.url", urls[0])
    assert find_remote(tmp_path) == urls[1]
    git(tmp_path, "config", "--unset", "remote.origin.url")


def test_a_refusal_quotes_the_message_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(seconds: float = 30) -> str:
        with pytest.raises(RefusedError) as refused:
            ask_git(tmp_path, ("log", "-1"), most_seconds=seconds)
        assert run_git(tmp_path, ("log", "-1"), seconds) is None
        return str(refused.value)

    assert ask().startswith("fatal: not a git repository (or any")
    git(tmp_path, "init", "-q")
    assert "does not have any commits yet" in ask()
    with monkeypatch.context() as patch:
        patch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        assert "dubious ownership" in ask()
        assert "safe.directory" in ask()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert ask() == NO_GIT
        (tmp_path / "env").symlink_to("/usr/bin/env")
        assert ask() == NO_GIT
    (tmp_path / ".git" / "HEAD").unlink()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    assert ask(0.5) == "git log took over 0.5 seconds"
    make_checkout(tmp_path / "empty", {})
    with pytest.raises(RefusedError, match="git rev-parse failed"):
        ask_git(tmp_path / "empty", ("rev-parse", "--verify", "--quiet", "HEAD"))


def test_the_checkout_of_a_folder_is_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    assert find_checkout(tmp_path / "a" / "b") is None
    make_checkout(tmp_path / "a", {"a.vox": ""})
    git(tmp_path / "a", "worktree", "add", "-q", str(tmp_path / "tree"))

    assert find_checkout(tmp_path / "a" / "b" / "c") == tmp_path / "a"
    assert find_checkout(tmp_path / "tree") == tmp_path / "tree"
    assert head_commit(tmp_path / "tree") == commit_all(tmp_path / "a")
