"""Token by token, only what can still become a piece that stands in its hole. For a generation process alone.

A token is taken where prefix and piece together can still become a program; the end only where the whole, with what
stands behind the hole, is one, or in an editor, where it may become one when somebody types on. Where the likeliest
tokens lead to no such end, the piece is given up.
"""

from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.inference.constraint import repeats_itself
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.language import Mode, Viability, ViableText, analyze, complete

if TYPE_CHECKING:
    import torch

_MOST_TRIES: Final = 160
"""Tokens that are tried at most for one piece, those that are taken among them."""
_MOST_READ: Final = 120_000
"""Characters that are parsed at most for one piece; a statement without an end is parsed again for each token."""
_WHOLE_SHARE: Final = 4
"""Parsing the whole takes so many times less per character than asking how it may go on."""
_REPLACEMENT: Final = "\ufffd"
"""What a tokenizer gives for a character of which bytes are missing."""
_CLOSING: Final = frozenset("} ")
"""Characters of what closes blocks and nothing else."""


def stands_at_cursor(prefix: str, piece: str, suffix: str, mode: Mode = Mode.SOURCE) -> bool:
    """Say whether a piece stands in a file that somebody types.

    It does where the whole is a program. Where nothing else stands on the line, it also does where the line is
    complete, only blocks are open behind it, and the whole is a program once further lines close them. Where no such
    lines lead to what stands behind, without the line either, that says nothing of the line.
    """
    if analyze(prefix + piece + suffix, mode).ok:
        return True
    line, _, behind = suffix.partition("\n")
    written, before = f"{prefix}{piece}\n", prefix[: prefix.rfind("\n") + 1]
    num_open = None if line.strip() or not piece.strip() else _count_blocks(written, mode)
    if num_open is None:
        return False
    if _is_reached(written, behind, num_open, mode):
        return True
    return not _is_reached(before, behind, _count_blocks(before, mode) or 0, mode)


def _count_blocks(text: str, mode: Mode) -> int | None:
    """Return how many blocks are to be closed for a program; None where it lacks anything else."""
    closing = complete(text, mode)
    return None if closing is None or not _CLOSING.issuperset(closing) else closing.count("}")


def _is_reached(text: str, behind: str, num_open: int, mode: Mode) -> bool:
    """Say whether two texts are a program together, with some open blocks of the first one closed between them."""
    return any(analyze(f"{text}{'}' * num}\n{behind}", mode).ok for num in range(num_open + 1))


class InsertConstraint:
    """The piece that one completion has written so far, and which tokens may follow it."""

    def __init__(  # noqa: PLR0913 - a tokenizer, two texts, and what is asked of the piece
        self,
        tokenizer: Any,
        stop: frozenset[int],
        mode: Mode,
        prefix: str,
        suffix: str,
        *,
        begun: str = "",
        is_typed: bool = False,
    ) -> None:
        """Begin with an empty piece between two texts; any of `stop` ends it, and it begins with the word `begun`.

        With `is_typed` it may end where `stands_at_cursor` holds; else only where the whole is a program.
        """
        self._tokenizer = tokenizer
        self._stop = stop
        self._mode = mode
        self._prefix, self._suffix, self._begun, self._is_typed = prefix, suffix, begun, is_typed
        self._num_tries = 0
        self._tokens: list[int] = []
        self._piece = ""
        self._viable = ViableText(mode)
        self._viable.append(prefix)
        self._num_read = 0
        self.is_forced = self._viable.viability is Viability.DEAD

    def choose(self, scores: "torch.Tensor", sampler: Sampler) -> int:
        """Choose the next token; where none fits, the end, and the piece is given up."""
        refused: list[int] = []
        while not self.is_forced and self._num_tries < _MOST_TRIES and self._num_read < _MOST_READ:
            self._num_tries += 1
            token = sampler.choose(scores, refused)
            if self._may_follow(token):
                self._take(token)
                return token
            refused.append(token)
        self.is_forced = True
        return min(self._stop)

    def _may_follow(self, token: int) -> bool:
        if token in self._stop:
            whole = self._prefix + self._piece + self._suffix
            self._num_read += len(whole) // _WHOLE_SHARE
            is_program = analyze(whole, self._mode).ok
            if is_program or not self._is_typed:
                return is_program
            self._num_read += len(whole)
            return stands_at_cursor(self._prefix, self._piece, self._suffix, self._mode)
        text = self._decode([*self._tokens, token])
        more = text.removeprefix(self._piece)
        if not text.startswith(self._piece) or not more or _REPLACEMENT in more:
            return False
        if not text.startswith(self._begun) and not self._begun.startswith(text):
            return False
        self._num_read += len(self._viable.unsettled)
        is_dead = self._viable.would_be(more) is Viability.DEAD
        return not is_dead and not ("\n" in more and repeats_itself(self._prefix + text))

    def _take(self, token: int) -> None:
        if token in self._stop:
            return
        self._tokens.append(token)
        text = self._decode(self._tokens)
        self._viable.append(text.removeprefix(self._piece))
        self._piece = text

    def _decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text
