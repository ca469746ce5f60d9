"""A back-off n-gram model over tokens of Vox: the baseline that a completion of a line has to beat.

It writes what followed the longest run of tokens that it has seen before, as an editor without a neural model would.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from mens_pipeline.language import tokenize

ORDER: Final = 12
"""Tokens of a run at most, white space and the one that is written included; longer ones tell hardly more."""
_MOST_TOKENS: Final = 64


class NgramModel:
    """Counts of what followed runs of tokens, white space and line ends included."""

    def __init__(self, programs: Iterable[str]) -> None:
        """Count the runs of some programs."""
        self._next: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        for program in programs:
            texts = [token.text for token in tokenize(program)]
            for place, text in enumerate(texts):
                for length in range(min(ORDER - 1, place) + 1):
                    self._next[tuple(texts[place - length : place])][text] += 1

    def complete_line(self, prefix: str) -> str:
        """Write the rest of the line that a text ends in; a token that the text breaks off in is written to its end."""
        texts = [token.text for token in tokenize(prefix)]
        begun = texts.pop() if texts and prefix[-1:].isalnum() else ""
        written: list[str] = []
        for _ in range(_MOST_TOKENS):
            text = self._likeliest(texts[-ORDER + 1 :], "" if written else begun)
            if text is None or "\n" in text:
                break
            written.append(text if written else text.removeprefix(begun))
            texts.append(text)
        return "".join(written)

    def _likeliest(self, context: Sequence[str], begun: str) -> str | None:
        """Return the most frequent token behind the longest known run that goes on from what was begun."""
        for first in range(len(context) + 1):
            counts = self._next.get(tuple(context[first:]))
            fitting = [text for text in counts if text.startswith(begun)] if counts is not None else []
            if counts is not None and fitting:
                return max(fitting, key=lambda text: (counts[text], text))
        return None
