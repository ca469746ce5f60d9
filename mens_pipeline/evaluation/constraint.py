"""Token by token, only what can still become a Vox program. For a generation process alone.

The most likely token is tried; if the text with it is dead, the next one. So the result is that of a mask over the
whole vocabulary, while hardly more than one token is ever looked at. Towards the limit a token also has to leave room
for what closes the program, so that every answer ends as one.
"""

from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.evaluation.sampling import Sampler
from mens_pipeline.language import Mode
from mens_pipeline.language.completion import complete
from mens_pipeline.language.viability import Viability, ViableText, has_tokens

if TYPE_CHECKING:
    import torch

_CLOSING: Final = 96
"""Tokens before the limit from where on each token has to leave room for the end of the program."""
_MOST_TRIES: Final = 256
"""Tokens that are tried at most; then the shortest way to the end of a program is taken."""
_REPLACEMENT: Final = "\ufffd"
"""What a tokenizer gives for a character of which bytes are missing."""
_LETTER: Final = "\u00e9"
"""Stands for any such character."""
_SHORTEST: Final = "\nimport q"
"""A program behind blanks and comments, which declare nothing."""
_FENCE: Final = "```"
"""What stands between two of them would be taken for the program."""


class Constraint:
    """The program that one answer is becoming."""

    def __init__(self, tokenizer: Any, stop: frozenset[int], mode: Mode, max_new_tokens: int) -> None:
        """Begin with the empty program.

        Args:
            tokenizer: Of the model.
            stop: The tokens that end the answer.
            mode: How it is read.
            max_new_tokens: Tokens of the answer at most, the one that ends it included.
        """
        self._tokenizer = tokenizer
        self._stop = stop
        self._mode = mode
        self._left = max_new_tokens
        self._tokens: list[int] = []
        self._text = ""
        self._viable = ViableText(mode, is_strict=True)
        self._closing: list[int] | None = None
        self._is_whole = True
        self.is_forced = False

    def choose(self, scores: "torch.Tensor", sampler: Sampler) -> int:
        """Choose the next token.

        Args:
            scores: Of every token, as float32.
            sampler: Draws tokens.
        """
        token = self._forced() if self.is_forced else self._drawn(scores, sampler)
        self._take(token)
        return token

    def _drawn(self, scores: "torch.Tensor", sampler: Sampler) -> int:
        refused: list[int] = []
        while len(refused) < _MOST_TRIES:
            token = sampler.choose(scores, refused)
            if self._may_follow(token):
                return token
            refused.append(token)
        self.is_forced = True
        self._closing = self._closing_of(self._text)
        return self._forced()

    def _forced(self) -> int:
        """The next token of the shortest way to the end."""
        if self._closing:
            return self._closing.pop(0)
        return min(self._stop)

    def _may_follow(self, token: int) -> bool:
        if token in self._stop:
            return self._is_whole and self._is_program()
        text = self._decoded(token)
        piece = text.removeprefix(self._text)
        if not text.startswith(self._text) or not piece or _FENCE in text:
            return False
        # The bytes of half a character give one replacement, bytes that are no character give more.
        piece = piece.removesuffix(_REPLACEMENT) + (_LETTER if piece.endswith(_REPLACEMENT) else "")
        if _REPLACEMENT in piece or self._viable.would_be(piece) is Viability.DEAD:
            return False
        if self._left > _CLOSING:
            return True
        closing = self._closing_of(self._text + piece)
        # The token itself and the one that ends the answer need room as well.
        return closing is not None and len(closing) + 2 <= self._left

    def _is_program(self) -> bool:
        return self._viable.viability is Viability.COMPLETE and self._viable.has_tokens

    def _take(self, token: int) -> None:
        self._left -= 1
        if token in self._stop:
            return
        text = self._decoded(token)
        self._is_whole = not text.endswith(_REPLACEMENT)
        text = text.rstrip(_REPLACEMENT)
        self._tokens.append(token)
        self._viable.append(text.removeprefix(self._text))
        self._text = text

    def _decoded(self, token: int) -> str:
        text: str = self._tokenizer.decode([*self._tokens, token], skip_special_tokens=True)
        return text

    def _closing_of(self, text: str) -> list[int] | None:
        """The tokens that make a program of a text; None where none are found."""
        rest = complete(text, self._mode, is_strict=True)
        if rest == "" and not has_tokens(text):
            rest = _SHORTEST
        return None if rest is None else list(self._tokenizer.encode(rest, add_special_tokens=False))
