"""Log-probabilities of tokens as OpenAI shows them, in chats and in text completions."""

from collections.abc import Sequence
from typing import Any, Final

from mens_pipeline.delivery.serving.reply import Drawn

MOST_IN_CHATS: Final = 20
MOST_IN_TEXTS: Final = 5
"""Tokens told of each place at most, as OpenAI has it."""

_LEAST: Final = -9999.0
"""In place of the logarithm of nothing, which JSON has no word for."""
_HALF: Final = "\ufffd"


def of_chat(tokens: Sequence[Drawn]) -> dict[str, Any]:
    """Show tokens as chats do."""
    content = [
        {
            **_told(token.text, token.log_probability),
            "top_logprobs": [_told(text, value) for text, value in token.others],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def of_text(tokens: Sequence[Drawn], offset: int) -> dict[str, Any]:
    """Show tokens as text completions do, behind so many characters of the answer."""
    ends = [offset]
    for token in tokens:
        ends.append(ends[-1] + len(token.text))
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_number(token.log_probability) for token in tokens],
        # Halves of characters look alike; the likelier one, which comes first, is told.
        "top_logprobs": [{text: _number(value) for text, value in reversed(token.others)} for token in tokens],
        "text_offset": ends[:-1],
    }


def _told(text: str, log_probability: float) -> dict[str, Any]:
    # The bytes of half a character are not known from its text.
    known = None if _HALF in text else list(text.encode())
    return {"token": text, "logprob": _number(log_probability), "bytes": known}


def _number(log_probability: float) -> float:
    return max(log_probability, _LEAST)
