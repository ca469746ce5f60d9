"""From tokens to text, piece by piece: never half a character, and nothing behind a stop text."""

from collections.abc import Callable, Sequence
from typing import Final

_REPLACEMENT: Final = "\ufffd"
"""What stands for bytes that are no character, or not yet."""


class TextStream:
    """The text of one answer in the making; all pieces together are what the whole decodes to."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> None:
        self._decode = decode
        self._stop = tuple(stop)
        self._tokens: list[int] = []
        self._start = 0
        self._read = 0
        self._taken = 0
        self._held = ""
        self.is_stopped = False

    def feed(self, token: int) -> str:
        """Add a token and return the text that it makes certain; empty when it makes none."""
        self._tokens.append(token)
        text = self._window()
        certain = text.rstrip(_REPLACEMENT)
        piece, self._taken = certain[self._taken :], max(self._taken, len(certain))
        if certain == text:
            self._start, self._read, self._taken = self._read, len(self._tokens), 0
        return self._unless_stopped(piece)

    def end(self) -> str:
        """Return what is left when the last token has come, half a character as U+FFFD."""
        if self.is_stopped:
            return ""
        piece = self._unless_stopped(self._window()[self._taken :])
        if not self.is_stopped:
            piece, self._held = piece + self._held, ""
        return piece

    def _window(self) -> str:
        """Return the text of the unsettled tokens; what came before is decoded with them, as decoders may ask."""
        settled = self._decode(self._tokens[self._start : self._read])
        return self._decode(self._tokens[self._start :])[len(settled) :]

    def _unless_stopped(self, piece: str) -> str:
        text = self._held + piece
        places = [place for place in (text.find(stop) for stop in self._stop) if place >= 0]
        if places:
            self.is_stopped, self._held = True, ""
            return text[: min(places)]
        held = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text may begin a stop text."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
