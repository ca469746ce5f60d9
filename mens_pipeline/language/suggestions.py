"""Near misses: what a wrong word was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(found: str, known: Iterable[str]) -> str | None:
    """A question that names the nearest known word.

    Args:
        found: The word in the source.
        known: The words that would have been right.

    Returns:
        ``Did you mean `query`?``, or None when nothing is near.
    """
    near = get_close_matches(found, sorted(known), n=1, cutoff=0.7)
    return f"Did you mean `{near[0]}`?" if near else None
