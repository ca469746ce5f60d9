"""The one place where a request becomes the text and the tokens that a model sees: training, judging, serving.

The form is ChatML. Prompt and completion are tokenised apart, so that no token spans the border between them, and what
a user writes can never forge a turn.
"""

import re
from dataclasses import dataclass
from typing import Final, Protocol

IM_START: Final = "<|im_start|>"
IM_END: Final = "<|im_end|>"
TEMPLATE: Final = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The same form as a template of Hugging Face, for whoever serves the adapter with other tools."""

_MARKER: Final = re.compile(r"<(?=\|[^\s|<>]{1,40}\|>)")
"""The first sign of anything that a tokenizer may take for a control token."""


class Tokenizer(Protocol):
    """What is needed of a Hugging Face tokenizer."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The ids of a text."""
        ...


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
        """Tokens of both."""
        return len(self.prompt) + len(self.completion)


def render_prompt(system: str, request: str) -> str:
    """The text up to where the answer begins.

    Args:
        system: What the model is told before every request.
        request: What is asked; control tokens in it are broken.
    """
    parts = (f"{IM_START}{role}\n{escape(text)}{IM_END}\n" for role, text in (("system", system), ("user", request)))
    return "".join(parts) + f"{IM_START}assistant\n"


def encode_prompt(tokenizer: Tokenizer, system: str, request: str) -> tuple[int, ...]:
    """The ids up to where the answer begins.

    Args:
        tokenizer: Of the base model; it knows the control tokens of ChatML.
        system: What the model is told before every request.
        request: What is asked.
    """
    return tuple(tokenizer.encode(render_prompt(system, request), add_special_tokens=False))


def encode(tokenizer: Tokenizer, system: str, request: str, answer: str) -> Encoded:
    """A request and its answer as ids.

    Args:
        tokenizer: Of the base model.
        system: What the model is told before every request.
        request: What is asked.
        answer: What the model shall say; line ends at its end are left out, the end of the turn follows.
    """
    completion = tokenizer.encode(escape(answer.rstrip("\n")) + IM_END, add_special_tokens=False)
    return Encoded(encode_prompt(tokenizer, system, request), tuple(completion))


def escape(text: str) -> str:
    """A text that can neither begin nor end a turn: `<|im_end|>` becomes `< |im_end|>`.

    Args:
        text: What a user wrote, or a program.
    """
    return _MARKER.sub("< ", text)
