"""Query git about a checkout: files, attributes, commit and remote. Errors contain git's own message."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.language import visible_text

_OPTIONS: Final = ("log.showSignature=false", "protocol.allow=never", "core.fsmonitor=false")
_LOCAL: Final = (
    *("DIR", "WORK_TREE", "IMPLICIT_WORK_TREE", "COMMON_DIR", "INDEX_FILE", "PREFIX", "NAMESPACE", "CONFIG"),
    *("CONFIG_PARAMETERS", "CONFIG_COUNT", "OBJECT_DIRECTORY", "ALTERNATE_OBJECT_DIRECTORIES", "SHALLOW_FILE"),
    *("GRAFT_FILE", "NO_REPLACE_OBJECTS", "REPLACE_REF_BASE"),
)
"""Variables that bind git to one repository (`git rev-parse --local-env-vars`); hooks inherit them."""

_UNSET: Final = ("env", *(word for name in _LOCAL for word in ("-u", f"GIT_{name}")), "LC_ALL=C")
GIT: Final = (*_UNSET, "git", "--no-pager", *(word for option in _OPTIONS for word in ("-c", option)))
"""Start of every git command: use the current folder, and run or fetch nothing that a configuration names."""

NO_GIT: Final = "git is not installed"
_NO_PROGRAM: Final = 127
_MOST_SECONDS: Final = 30
"""A checkout may contain a pipe in place of a file, which would block git forever."""

_MOST_CHARACTERS: Final = 400
_VENDORED: Final = "linguist-vendored"
_GENERATED: Final = "linguist-generated"
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/]*@|[?#].*")


def ask_git(folder: Path, words: tuple[str, ...], asked: str = "", most_seconds: float = _MOST_SECONDS) -> str:
    """Run git in a folder with an input and return its output; raise `RefusedError` with git's message if it fails."""
    try:
        result = subprocess.run(  # noqa: S603 - our own words
            (*GIT, *words),
            cwd=folder,
            input=asked,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
            timeout=most_seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise RefusedError(f"git {words[0]} took over {most_seconds:g} seconds") from error
    except OSError as error:
        raise RefusedError(NO_GIT) from error
    if result.returncode:
        said = visible_text(" ".join(result.stderr.split()))[:_MOST_CHARACTERS].rstrip(".")
        raise RefusedError(NO_GIT if result.returncode == _NO_PROGRAM else said or f"git {words[0]} failed")
    return result.stdout


def run_git(folder: Path, words: tuple[str, ...], most_seconds: float = _MOST_SECONDS) -> str | None:
    """Run git and return its output; None if it is empty, or git fails, times out or is not installed."""
    try:
        return ask_git(folder, words, most_seconds=most_seconds).strip() or None
    except RefusedError:
        return None


def head_commit(folder: Path) -> str | None:
    """Return the checked-out commit around a folder, 40 hexadecimal digits; None without a commit or without git."""
    return run_git(folder, ("rev-parse", "--verify", "--quiet", "HEAD^{commit}"))


def find_checkout(folder: Path) -> Path | None:
    """Return the root of the git checkout around a folder without running git; None outside a checkout."""
    folder = folder.resolve()
    return next((place for place in (folder, *folder.parents) if is_checkout(place)), None)


def is_checkout(folder: Path) -> bool:
    """Return whether a folder is the root of a checkout, a submodule or a worktree; False if its path is too long."""
    return os.path.lexists(folder / ".git")


def list_files(folder: Path) -> frozenset[str]:
    """List the files that git tracks or does not ignore, and nested checkouts; raise `RefusedError` if git fails."""
    listed = ask_git(folder, ("ls-files", "-z", "--cached", "--others", "--exclude-standard"))
    return frozenset(name.rstrip("/") for name in listed.split("\0") if name)


def read_attributes(folder: Path, names: list[str]) -> dict[str, tuple[bool | None, bool | None]]:
    """Return whether `.gitattributes` marks files as vendored and as generated; leave out files without a mark."""
    asked = "".join(f"{name}\0" for name in names)
    try:
        output = ask_git(folder, ("check-attr", "-z", "--stdin", _VENDORED, _GENERATED), asked).split("\0")
    except RefusedError:
        return {}
    values = {"unspecified": None, "unset": False, "false": False}
    said = (values.get(value, True) for value in output[2::3])
    pairs = zip(output[0::6], zip(said, said, strict=True), strict=False)
    return {name: pair for name, pair in pairs if pair != (None, None)}


def find_remote(folder: Path) -> str | None:
    """Return the URL of `origin` without credentials; None without a remote."""
    url = run_git(folder, ("config", "--get", "remote.origin.url"))
    return url and visible_text(_CREDENTIALS.sub("", url))
