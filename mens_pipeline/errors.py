"""Everything this package raises on purpose, and what a wrong word was probably meant to be.

MensError                     something a person can mend; shown as one message, never as a traceback
├── RefusedError              the work was done and its result is not good enough; exit code 1
├── ConfigurationError        a setting or configuration file does not hold together
│   └── DiskError             a disk is full or can only be read; exit code 1
└── SourceNotFoundError       a file or folder that was asked for is not there
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Final


class MensError(Exception):
    """The base of the tree; its message says where, what was found, what was expected and what to do."""


class RefusedError(MensError):
    """The work was done, and its result is not good enough."""


class ConfigurationError(MensError):
    """A setting or a configuration file does not hold together."""


class DiskError(ConfigurationError):
    """A disk is full, or can only be read: what was asked for is right, and can be asked for again."""


class SourceNotFoundError(MensError):
    """A file or folder that was asked for is not there."""


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of this package, as in a checkout or as elsewhere."""
    is_checkout = (Path(__file__).parents[1] / "constraints.txt").exists()
    what = f'-c constraints.txt -e ".[{extra}]"' if is_checkout else f'"mens-pipeline[{extra}]"'
    return f"Run: pip install {what}"


_SHORTEST_BEGINNING: Final = 3
_SIMILAR: Final = 0.7
_MOST_WORDS: Final = 2000
"""Known words that one word is compared with at most: more take seconds in a program with many wrong names."""


def did_you_mean(found: str, known: Iterable[str]) -> str | None:
    """Return a question that names the nearest known word.

    Returns:
        ``Did you mean `query`?``: the most similar word, else the shortest that begins like it, else None.
    """
    words = sorted(known, key=lambda word: (len(word), word))
    near = near_miss(found, words)
    if near is not None or len(found) < _SHORTEST_BEGINNING or len(words) > _MOST_WORDS:
        return near
    return next((f"Did you mean `{word}`?" for word in words if word.startswith(found)), None)


def near_miss(found: str, known: Iterable[str]) -> str | None:
    """Return a question that names the one known word that is spelt almost like this one; None without one."""
    words = sorted(known)
    near = get_close_matches(found, words, n=1, cutoff=_SIMILAR) if len(words) <= _MOST_WORDS else []
    return f"Did you mean `{near[0]}`?" if near else None
