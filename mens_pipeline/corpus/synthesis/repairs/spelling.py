"""Misspelt keywords and decorators."""

from collections.abc import Mapping
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.repairs.sites import Breakage, pick
from mens_pipeline.language.vocabulary import DECORATORS, KEYWORDS

_FEWEST_LETTERS: Final = 2


def misspelled_keyword(program: Program, random: Random) -> Edit | None:
    """Misspell a keyword: two letters swapped, one doubled or one left out."""
    return _misspelt(program, KEYWORDS, random)


def misspelled_decorator(program: Program, random: Random) -> Edit | None:
    """Misspell a decorator: two letters swapped, one doubled or one left out."""
    return _misspelt(program, DECORATORS, random)


def _misspelt(program: Program, words: frozenset[str], random: Random) -> Edit | None:
    token = pick([token for token in program.significant if token.kind in words], random)
    if token is None:
        return None
    text = _typo(token.text, random)
    is_known = text in KEYWORDS or text in program.identifiers
    return None if is_known else Edit(token.start, token.end, text)


def _typo(word: str, random: Random) -> str:
    """Misspell a word as in hasty typing; the `@` of a decorator stays."""
    first = 1 if word.startswith("@") else 0
    place = random.choice(range(first, len(word) - 1))
    one, two = word[place], word[place + 1]
    forms = [word[:place] + two + one + word[place + 2 :], word[:place] + one + one + word[place + 1 :]]
    if len(word) > first + _FEWEST_LETTERS:
        forms.append(word[: place + 1] + word[place + 2 :])
    return random.choice([form for form in forms if form != word])


SPELLING: Final[Mapping[str, Breakage]] = {
    "misspelled-keyword": misspelled_keyword,
    "misspelled-decorator": misspelled_decorator,
}
"""Name -> breakage."""
