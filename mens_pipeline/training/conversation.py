"""A conversation of any number of turns as ids, in the form of `chat`.

What a model was trained on comes out to the token: a system text and a request alone, and every earlier answer as the
completion that it once was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mens_pipeline.training.chat import IM_END, IM_START, Tokenizer, control_tokens, escape, opening_for

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Turn:
    """Message of one role; control tokens in its text are broken when it is shown to a model."""

    role: Role
    text: str


def encode_turns(tokenizer: Tokenizer, turns: Sequence[Turn]) -> tuple[int, ...]:
    """Encode a conversation up to where the next completion begins, or goes on.

    A last turn of the model itself is the beginning of its answer.
    """
    control, opening = control_tokens(tokenizer), opening_for(tokenizer)
    ids: list[int] = []
    text = ""
    *earlier, last = turns
    if last.role != "assistant":
        earlier = [*turns]
    for turn in earlier:
        if turn.role == "assistant":
            # As in training, where no token spans the border between a prompt and its completion.
            ids += tokenizer.encode(text + opening, add_special_tokens=False)
            ids += tokenizer.encode(escape(turn.text.rstrip("\n"), control) + IM_END, add_special_tokens=False)
            text = "\n"
        else:
            text += f"{IM_START}{turn.role}\n{escape(turn.text, control)}{IM_END}\n"
    ids += tokenizer.encode(text + opening, add_special_tokens=False)
    if last.role == "assistant":
        ids += tokenizer.encode(escape(last.text, control), add_special_tokens=False)
    return tuple(ids)


def encode_text(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Encode a text that goes on, without any conversation around it; control tokens in it are broken."""
    return tuple(tokenizer.encode(escape(text, control_tokens(tokenizer)), add_special_tokens=False))
