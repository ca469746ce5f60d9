"""The one place where a request becomes the text and the tokens that a model sees: training, judging, serving.

The form is ChatML. Prompt and completion are tokenised apart, so that no token spans the border between them, and what
a user writes can never forge a turn.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.files import read_regular

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

_HEAD: Final = "{% if not messages or messages[0]['role'] != 'system' %}" + f"{{{{ '{IM_START}system\\n"
_TAIL: Final = f"{IM_END}\\n' }}}}" + "{% endif %}"
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)

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


def template_with(system: str, template: str | None = None) -> str:
    """Build the chat template of a model, which begins with its system prompt where a conversation brings none.

    A model that is asked without the prompt that it was trained with answers worse, and most clients send none.

    Returns:
        A Jinja template; one request gives the text of `render_prompt`.
    """
    literal = system.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return _HEAD + literal + _TAIL + template_behind(opening_of(template))


def system_of(template: str) -> str | None:
    """Return the system prompt that a chat template of ours begins with; None where it is none of ours."""
    tail = _TAIL + template_behind(opening_of(template))
    literal = template.removeprefix(_HEAD).removesuffix(tail)
    system = _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], literal)
    return system if template_with(system, template) == template else None


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


_TEMPLATE_FILE: Final = "chat_template.jinja"
_OPTIONS: Final = "tokenizer_config.json"
_LONGEST_TEMPLATE: Final = 10_000_000
"""Bytes of a template, or of what a tokenizer says besides."""

_LARGEST_TOKENIZER: Final = 100_000_000
"""Bytes; the largest vocabularies take a third of it."""


def read_tokenizer(path: Path) -> Any:
    """Read the tokenizer of a file that anybody may have written.

    Raises:
        RefusedError: It cannot be read, or is no file of a tokenizer.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - a command or a child process loads it

    try:
        return Tokenizer.from_buffer(read_regular(path, _LARGEST_TOKENIZER))
    except (OSError, ValueError) as error:
        found = error.strerror if isinstance(error, OSError) else f"no tokenizer ({error})"
        raise RefusedError(f"{path}: {found}. Fetch or write the model again.") from error


def template_in(folder: Path) -> str | None:
    """Return the chat template beside a model, wherever transformers looks for it; None without one.

    Raises:
        RefusedError: A file cannot be read.
    """
    path = folder / _TEMPLATE_FILE
    if path.is_file():
        return _text_of(path)
    path = folder / _OPTIONS
    if not path.is_file():
        return None
    try:
        document = json.loads(_text_of(path))
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{path}: no JSON ({error}). Write the model again.") from error
    if not isinstance(document, dict):
        raise RefusedError(f"{path}: a {type(document).__name__}, no object. Write the model again.")
    template = document.get("chat_template")
    return template if isinstance(template, str) else None


def _text_of(path: Path) -> str:
    """Read the text of a file that anybody may have written."""
    try:
        return read_regular(path, _LONGEST_TEMPLATE).decode("utf-8")
    except (OSError, ValueError) as error:
        raise RefusedError(f"{path}: cannot be read ({error}). Write the model again.") from error


class FileTokenizer:
    """Tokens of a text by the `tokenizer.json` of a folder; safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Read the file.

        Raises:
            RefusedError: It is no file of a tokenizer.
        """
        self._tokenizer: Any = read_tokenizer(folder / "tokenizer.json")
        self.chat_template = template_in(folder)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @cached_property
    def added_tokens_decoder(self) -> Mapping[int, ControlToken]:
        """The added tokens by their ids."""
        added: Mapping[int, ControlToken] = self._tokenizer.get_added_tokens_decoder()
        return added

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids
