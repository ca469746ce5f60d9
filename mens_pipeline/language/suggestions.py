"""Near misses: what a wrong word was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

FOREIGN_WORDS: Final[dict[str, str]] = {
    "await": "Vox calls an async function like any other.",
    "case": "An arm of `match` begins with its pattern.",
    "class": "Write `type Name { ... }`.",
    "const": "Write `let`.",
    "def": "Write `fn`.",
    "elif": "Write `else if`.",
    "elseif": "Write `else if`.",
    "enum": "Write `type Name = | A | B`.",
    "func": "Write `fn`.",
    "function": "Write `fn`.",
    "interface": "Write `type Name { ... }`.",
    "new": "A constructor is called by its name alone.",
    "struct": "Write `type Name { ... }`.",
    "switch": "Write `match`.",
    "throw": "Return `Error(message)`.",
    "try": "Write `?` behind what may fail.",
    "use": "Write `import`.",
    "var": "Write `let mut`.",
}
"""Words of other languages -> what to write in Vox."""

_SHORTEST_BEGINNING: Final = 3
_SIMILAR: Final = 0.7
_MOST_WORDS: Final = 2000
"""That are compared with another one: more would take seconds where many are wrong."""


def did_you_mean(found: str, known: Iterable[str]) -> str | None:
    """Return a question that names the nearest known word.

    Returns:
        ``Did you mean `query`?``: the most similar word, else the shortest that begins like it, else None.
    """
    words = sorted(known, key=lambda word: (len(word), word))
    if len(words) > _MOST_WORDS:
        return None
    near = get_close_matches(found, words, n=1, cutoff=_SIMILAR)
    if not near and len(found) >= _SHORTEST_BEGINNING:
        near = [word for word in words if word.startswith(found)]
    return f"Did you mean `{near[0]}`?" if near else None


def near_miss(found: str, known: Iterable[str]) -> str | None:
    """Return a question that names the known word that this one can only be a slip of."""
    words = sorted(known)
    near = get_close_matches(found, words, n=1, cutoff=_SIMILAR) if len(words) <= _MOST_WORDS else []
    return f"Did you mean `{near[0]}`?" if near else None
