"""The git commit of a folder; git is called without anything that the checkout of a stranger could configure."""

import subprocess
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.extract.source_roots import FILE_NAME as ROOTS_FILE
from mens_pipeline.corpus.extract.sources import PAGE_SUFFIXES, VOX_SUFFIXES

# What the checkout's own configuration might run or fetch is switched off.
_OPTIONS: Final = ("log.showSignature=false", "protocol.allow=never", "core.fsmonitor=false")
_GIT: Final = ("git", "--no-pager", *(word for option in _OPTIONS for word in ("-c", option)))

_NEWEST_CHANGE: Final = (
    *("log", "-1", "--format=%H", "--"),
    *(f":(glob)**/*{suffix}" for suffix in (*VOX_SUFFIXES, *PAGE_SUFFIXES)),
    f":(glob)**/{ROOTS_FILE}",
)

_MOST_SECONDS: Final = 30
"""A checkout may have a pipe where git looks for a file, which would keep it for ever."""

_HEAD: Final = ("rev-parse", "--verify", "--quiet", "HEAD^{commit}")


def commit_of(root: Path) -> str | None:
    """Return the newest git commit that changed a program or a page; None outside a checkout or without git.

    Other commits leave it as it is, and so the corpus: nothing is trained again because of a change elsewhere.
    """
    return _told(root, _NEWEST_CHANGE)


def head_commit(folder: Path) -> str | None:
    """Return the git commit that is checked out around a folder, 40 hexadecimal digits; None without one, or git."""
    return _told(folder, _HEAD)


def _told(folder: Path, words: tuple[str, ...], most_seconds: float = _MOST_SECONDS) -> str | None:
    """Run git and return what it prints; None where it prints nothing, fails, times out or is not installed."""
    try:
        result = subprocess.run(  # noqa: S603 - our own words
            (*_GIT, *words),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=most_seconds,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None if result.returncode == 0 else None
