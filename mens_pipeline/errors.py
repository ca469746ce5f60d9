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


def require_folder(folder: Path, advice: str) -> None:
    """Raise `SourceNotFoundError` with advice unless a path is a folder."""
    if not folder.is_dir():
        found = "not a folder" if folder.exists() else "no such folder"
        raise SourceNotFoundError(f"{folder}: {found}. {advice}")


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of this package, in a checkout or elsewhere."""
    is_checkout = (Path(__file__).parents[1] / "constraints.txt").exists()
    what = f'-c constraints.txt -e ".[{extra}]"' if is_checkout else f'"mens-pipeline[{extra}]"'
    return f"Run: pip install {what}"


SMALLER: Final = "Use a smaller batch, model or --preset, or end other programs, and run the command again."
_AGAIN: Final = "and run the command again."
_OF_MACHINE: Final = {
    "Read-only file system": f"Let it be written, {_AGAIN}",
    "No space left on device": f"Make room, {_AGAIN}",
    "No locks available": f"Use folders on another file system, {_AGAIN}",
    **dict.fromkeys(("File name too long", "Symlink loop"), f"Name another path, {_AGAIN}"),
    **dict.fromkeys(("Cannot allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED"), SMALLER),
}
"""Phrase of a system error, which libraries quote -> advice."""
_SHOWN: Final = 300


def describe_machine_problem(error: BaseException) -> str | None:
    """Return a message with advice if an exception is about memory, a disk, a path or Dagster's database, else None."""
    said = " ".join(str(error).split())[:_SHOWN]
    if isinstance(error, MemoryError):
        return f"out of memory. {SMALLER}"
    if type(getattr(error, "orig", error)).__module__.startswith("psycopg"):
        return f"PostgreSQL, the database of Dagster: {said}. Make sure that it runs, {_AGAIN}"
    advice = next((advice for words, advice in _OF_MACHINE.items() if words in str(error)), None)
    return advice and f"{said.removesuffix('.')}. {advice}"


_SHORTEST_BEGINNING: Final = 3
_SIMILAR: Final = 0.7
_MOST_WORDS: Final = 2000
"""Maximum known words to compare; with more, a program with many wrong names would take seconds."""


def did_you_mean(found: str, known: Iterable[str]) -> str | None:
    """Return ``Did you mean `query`?`` with the most similar known word.

    Fall back to the shortest word that starts with `found`; return None if there is no such word.
    """
    words = sorted(known, key=lambda word: (len(word), word))
    near = near_miss(found, words)
    if near is not None or len(found) < _SHORTEST_BEGINNING or len(words) > _MOST_WORDS:
        return near
    return next((f"Did you mean `{word}`?" for word in words if word.startswith(found)), None)


def near_miss(found: str, known: Iterable[str]) -> str | None:
    """Return ``Did you mean `query`?`` with the known word of almost the same spelling, or None."""
    words = sorted(known)
    near = get_close_matches(found, words, n=1, cutoff=_SIMILAR) if len(words) <= _MOST_WORDS else []
    return f"Did you mean `{near[0]}`?" if near else None
