"""Git checkouts for the tests of the corpus."""

import subprocess
from pathlib import Path

_GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")


def git(folder: Path, *words: str) -> str:
    """Run git in a folder and return its output."""
    return subprocess.run([*_GIT, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Write files below a folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def commit_all(folder: Path, *, force: bool = False) -> str:
    """Commit everything that changed, if anything did; return the commit that is checked out."""
    git(folder, "add", "-A", *(["--force"] if force else []))
    if git(folder, "status", "--porcelain", "--untracked-files=no"):
        git(folder, "commit", "-q", "-m", "x")
    return git(folder, "rev-parse", "HEAD")


def make_checkout(folder: Path, files: dict[str, str], *, force: bool = False) -> str:
    """Make a checkout of these files, ignored ones too if `force`; return its commit, empty without files."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    write_files(folder, files)
    return commit_all(folder, force=force) if files else ""
