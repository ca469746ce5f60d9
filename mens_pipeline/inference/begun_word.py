"""The word that stands before a cursor, written from its beginning: the model sees a prompt that ends before the word.

The tokens of half a word are others than those of the whole one, so a model that is shown `retu` has never seen what
follows. It is shown what stands before the word, and may choose among the tokens that spell out what stands there, or
go on from it (token healing, as guidance and llama.cpp's `token healing` example do).
"""

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

_REPLACEMENT: Final = "\ufffd"
"""The decoded text of a token that holds a part of a character."""


class Vocabulary:
    """Texts of the tokens of a tokenizer, as they stand behind another token; special ones have none."""

    def __init__(self, tokenizer: Any) -> None:
        special = set(tokenizer.all_special_ids)
        # Behind another token, since some decoders leave out the blank of the first one.
        anchor = tokenizer.encode("a", add_special_tokens=False)[-1]
        ids = range(len(tokenizer))
        texts = tokenizer.batch_decode([[anchor, token] for token in ids])
        start = len(tokenizer.decode([anchor]))
        self._tokens: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for token, text in zip(ids, texts, strict=True):
            if token not in special and len(text) > start and _REPLACEMENT not in text:
                self._tokens[text[start]].append((text[start:], token))

    def fitting(self, text: str) -> dict[int, str]:
        """Return the tokens that a text begins with, or that begin with it, and their texts."""
        return {
            token: piece for piece, token in self._tokens[text[0]] if piece.startswith(text) or text.startswith(piece)
        }


@lru_cache(maxsize=2)
def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """Return the texts of a tokenizer's tokens, read once."""
    return Vocabulary(tokenizer)


class BegunWord:
    """The rest of the word before the cursor that a completion has not spelled yet.

    Attributes:
        text: The word, with the blank before it; the completion begins with it, and it is no part of the piece.
    """

    def __init__(self, tokenizer: Any, text: str) -> None:
        self.text = text
        self._left = text
        self._vocabulary = vocabulary_of(tokenizer)
        self._fitting = self._vocabulary.fitting(text)

    def narrow(self, scores: "torch.Tensor") -> "torch.Tensor":
        """Return the scores of the next token, of shape (tokens,), with none for tokens that do not fit."""
        if not self._left:
            return scores
        fitting = [*self._fitting]
        narrowed = scores.new_full(scores.shape, float("-inf"))
        narrowed[fitting] = scores[fitting]
        return narrowed

    def take(self, token: int) -> None:
        """Go on behind a token that was written."""
        if self._left:
            self._left = self._left[len(self._fitting.get(token, "")) :]
            self._fitting = self._vocabulary.fitting(self._left) if self._left else {}
