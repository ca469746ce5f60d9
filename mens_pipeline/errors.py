"""Errors that this package raises on purpose, and suggestions for misspelt words.

MensError                     a problem that a person can fix; shown as a message, never as a traceback
├── RefusedError              the work was done, but its result is not good enough; exit code 1
├── ConfigurationError        a setting or a configuration file is wrong
│   └── DiskError             a disk is full or read-only; exit code 1
└── SourceNotFoundError       a requested file or folder does not exist
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Final


class MensError(Exception):
    """Base class; its message says where, what was found, what was expected and what to do."""


class RefusedError(MensError):
    """The work was done, but its result is not good enough."""


class ConfigurationError(MensError):
    """A setting or a configuration file is wrong."""


class DiskError(ConfigurationError):
    """A disk is full or read-only; the request was valid and can be repeated."""


class SourceNotFoundError(MensError):
    """A requested file or folder does not exist."""


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of this package, in a checkout or elsewhere."""
    is_checkout = (Path(__file__).parents[1] / "constraints.txt").exists()
    what = f'-c constraints.txt -e ".[{extra}]"' if is_checkout else f'"mens-pipeline[{extra}]"'
    return f"Run: pip install {what}"


_SHORTEST_BEGINNING: Final = 3
_SIMILAR: Final = 0.7
_MOST_WORDS: Final = 2000
"""Maximum known words to compare with; more would take seconds in a program with many wrong names."""


def did_you_mean(found: str, known: Iterable[str]) -> str | None:
    """Return ``Did you mean `query`?`` with the most similar known word.

    Without a similar one, the shortest word with the same beginning counts; without that, return None.
    """
    words = sorted(known, key=lambda word: (len(word), word))
    near = near_miss(found, words)
    if near is not None or len(found) < _SHORTEST_BEGINNING or len(words) > _MOST_WORDS:
        return near
    return next((f"Did you mean `{word}`?" for word in words if word.startswith(found)), None)


def near_miss(found: str, known: Iterable[str]) -> str | None:
    """Return ``Did you mean `query`?`` with the known word of almost the same spelling; None without one."""
    words = sorted(known)
    near = get_close_matches(found, words, n=1, cutoff=_SIMILAR) if len(words) <= _MOST_WORDS else []
    return f"Did you mean `{near[0]}`?" if near else None
