"""The words of a row, and the runs of them that make copies visible."""

import re
from collections.abc import Sequence
from typing import Final

_WORD: Final = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> tuple[str, ...]:
    """Return names, numbers and single signs, in order; for code and prose alike."""
    return tuple(_WORD.findall(text))


def ngrams_of(words: Sequence[str], length: int) -> frozenset[str]:
    """Return the n-grams of some words; a shorter text is one n-gram."""
    last = max(1, len(words) - length + 1)
    return frozenset(" ".join(words[start : start + length]) for start in range(last))
