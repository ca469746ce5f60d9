"""The one place where a request becomes the text and the tokens that a model sees: training, judging, serving.

The form is ChatML. Prompt and completion are tokenised apart, so that no token spans the border between them, and what
a user writes can never forge a turn.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, Protocol

IM_START: Final = "<|im_start|>"
IM_END: Final = "<|im_end|>"
TEMPLATE: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The same form as a template of Hugging Face, for whoever serves the adapter with other tools."""

_BEGIN: Final = f"{IM_START}assistant\n"
_NO_THOUGHT: Final = "<think>\n\n</think>\n\n"
"""What templates of models that think put before an answer without a thought."""

_MARKER: Final = re.compile(r"<(?=\|[^\s|<>]{1,40}\|>)")
"""The first sign of anything that a tokenizer may take for a control token."""

Role = Literal["system", "user", "assistant"]


class ControlToken(Protocol):
    """Entry of a tokenizer for a token that was added to its vocabulary."""

    @property
    def content(self) -> str:
        """Text of the token."""
        ...

    @property
    def special(self) -> bool:
        """Whether it steers the model, rather than being a word."""
        ...


class Tokenizer(Protocol):
    """Methods of a Hugging Face tokenizer that are used."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, ControlToken]:
        """Its added tokens by their ids."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """Message of one role; control tokens in its text are broken when it is shown to a model."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """A conversation of one request and one answer as ids.

    Attributes:
        prompt: What is given, up to where the answer begins.
        completion: The answer and the end of its turn, which the model has to learn.
    """

    prompt: tuple[int, ...]
    completion: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of tokens of both."""
        return len(self.prompt) + len(self.completion)


def opening_of(template: str | None) -> str:
    """Return the text that an answer begins behind.

    A model that was made to think does so unless its prompt holds an empty thought: its template writes one where
    thinking is switched off. It is trained, judged and served in that form.

    The template is searched, and never rendered.
    """
    thinks = template is not None and _NO_THOUGHT in template.replace("\\n", "\n")
    return _BEGIN + _NO_THOUGHT if thinks else _BEGIN


def template_behind(opening: str) -> str:
    """Return our chat template for a model whose answers begin behind what `opening_of` gave for its base."""
    return TEMPLATE.replace(_BEGIN, opening)


def opening_for(tokenizer: Tokenizer) -> str:
    """Return the text that an answer begins behind."""
    template = getattr(tokenizer, "chat_template", None)
    return opening_of(template.get("default") if isinstance(template, dict) else template)


def render_prompt(system: str, request: str, control: tuple[str, ...] = (), opening: str = _BEGIN) -> str:
    """Render a prompt: the text up to where the completion begins.

    Args:
        system: What the model is told before every prompt.
        request: What is asked; control tokens in it are broken.
        control: What the tokenizer takes for control tokens beside those of ChatML.
        opening: The text that an answer begins behind.
    """
    turns = (("system", system), ("user", request))
    parts = (f"{IM_START}{role}\n{escape(text, control)}{IM_END}\n" for role, text in turns)
    return "".join(parts) + opening


def control_tokens(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the control tokens of a tokenizer, such as `<|im_end|>`, `<filename>` or `</s>`; long ones first."""
    written = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return tuple(sorted((text for text in written if len(text) > 1), key=lambda text: (-len(text), text)))


def encode_prompt(tokenizer: Tokenizer, system: str, request: str) -> tuple[int, ...]:
    """Encode a prompt: the ids up to where the completion begins."""
    text = render_prompt(system, request, control_tokens(tokenizer), opening_for(tokenizer))
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def encode(tokenizer: Tokenizer, system: str, request: str, answer: str) -> Encoded:
    """Encode a prompt and its completion as ids, without line ends at its end, with the end of the turn."""
    text = escape(answer.rstrip("\n"), control_tokens(tokenizer)) + IM_END
    completion = tokenizer.encode(text, add_special_tokens=False)
    return Encoded(encode_prompt(tokenizer, system, request), tuple(completion))


def escape(text: str, control: tuple[str, ...] = ()) -> str:
    """Break control tokens so that a text can neither begin nor end a turn: `<|im_end|>` becomes `< |im_end|>`."""
    broken = _MARKER.sub("< ", text)
    return _any_of(control).sub(lambda match: f"{match[0][0]} {match[0][1:]}", broken) if control else broken


def encode_turns(tokenizer: Tokenizer, turns: Sequence[Turn]) -> tuple[int, ...]:
    """Encode a conversation up to where the next completion begins, or goes on.

    What a model was trained on comes out to the token: a system text and a request alone, and every earlier answer as
    the completion that it once was.

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


@cache
def _any_of(control: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, control)))
