"""Chat formats: render and encode requests, the same way for training, evaluation and serving.

The format follows the chat template of the base: ChatML, Llama 3, Gemma or Mistral; ChatML without a template
(`format_of`). Prompt and completion are tokenised separately, so that no token spans the border between them. A control
token in user text is encoded as plain characters, so it cannot forge a turn and decodes to the same text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal, Protocol

IM_START: Final = "<|im_start|>"
IM_END: Final = "<|im_end|>"

_MARKER: Final = re.compile(r"<[|\uff5c].{1,80}[|\uff5c]>")
"""An added token that is a control token even if its tokenizer does not mark it as special: `<|fim_prefix|>`."""

_CUT: Final = "\ud800"
"""Separates the parts of a control token before encoding; a lone surrogate, which no file can hold."""

Role = Literal["system", "user", "assistant"]
FormatName = Literal["qwen_chatml_im_start", "llama3", "gemma", "mistral"]


class ControlToken(Protocol):
    """A token that was added to the vocabulary of a tokenizer."""

    @property
    def content(self) -> str:
        """The text of the token."""

    @property
    def special(self) -> bool:
        """Whether it is a control token; other added tokens are words."""


class Tokenizer(Protocol):
    """The methods of a Hugging Face tokenizer that this project uses."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, ControlToken]:
        """Id -> added token."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of one role; control tokens in its text are encoded as characters."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt and its completion as ids; the completion includes the end of its turn."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of tokens in both."""
        return len(self.prompt) + len(self.completion)


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """Chat format of a family of models, with the texts around and between its turns.

    Each of the `markers` must be a single token of the base. If `system` is None, the system prompt is put before the
    next user message, followed by an empty line. A completion starts after `opening` and ends with the token `end`.
    """

    name: FormatName
    label: str
    markers: tuple[str, ...]
    bos: str
    system: tuple[str, str] | None
    user: tuple[str, str]
    opening: str
    end: str
    behind: str

    def template(self, system: str | None = None) -> str:
        """Build a Hugging Face chat template that renders like `render_prompt` and that `format_of` recognises.

        `system` is the default system prompt: most clients send none, and completions are worse without the system
        prompt of training.
        """
        begin = f"{{{{ '{self.bos}' }}}}" if self.bos else ""
        if self.system is None:
            begin += "{% set held = namespace(text='') %}"
        if system is not None:
            shown = f"{{% set held.text = {_literal(system + _EMPTY_LINE)} %}}"
            if self.system is not None:
                shown = f"{{{{ {_literal(system.join(self.system))} }}}}"
            begin += "{% if not messages or messages[0]['role'] != 'system' %}" + shown + "{% endif %}"
        return f"{begin}{self._messages()}{{% if add_generation_prompt %}}{{{{ '{self.opening}' }}}}{{% endif %}}"

    def _messages(self) -> str:
        """Build the Jinja for all turns; a format without system turns puts the system text into the next user turn."""
        if self.system is not None:  # all turns have the same form and name their role
            begin, middle = self.user[0].split("user")
            end = f"'{self.end}'" + (f" + '{self.behind}'" if self.behind else "")
            turn = f"'{begin}' + message['role'] + '{middle}' + message['content'] + {end}"
            return f"{{% for message in messages %}}{{{{ {turn} }}}}{{% endfor %}}"
        return (
            "{% for message in messages %}"
            "{% if message['role'] == 'system' %}{% set held.text = held.text + message['content'] + '\\n\\n' %}"
            "{% elif message['role'] == 'user' %}"
            f"{{{{ '{self.user[0]}' + held.text + message['content'] + '{self.user[1]}' }}}}{{% set held.text = '' %}}"
            f"{{% else %}}{{{{ '{self.opening}' + message['content'] + '{self.end}{self.behind}' }}}}"
            "{% endif %}{% endfor %}"
        )

    def render_turns(self, turns: Sequence[Turn], control: tuple[str, ...]) -> str:
        """Render system and user turns for `encode_cut`."""
        text = held = ""
        for turn in turns:
            shown = cut(turn.text, control)
            if turn.role == "user":
                text += (held + shown).join(self.user)
                held = ""
            elif self.system is not None:
                text += shown.join(self.system)
            else:
                held += shown + _EMPTY_LINE
        return text + (held.removesuffix(_EMPTY_LINE).join(self.user) if held else "")


_EMPTY_LINE: Final = "\n\n"
_NO_THOUGHT: Final = "<think>\n\n</think>\n\n"
"""Text before a completion in templates of reasoning models when reasoning is off."""


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


CHATML: Final = ChatFormat(
    name="qwen_chatml_im_start",
    label="ChatML",
    markers=(IM_START, IM_END),
    bos="",
    system=(f"{IM_START}system\n", f"{IM_END}\n"),
    user=(f"{IM_START}user\n", f"{IM_END}\n"),
    opening=f"{IM_START}assistant\n",
    end=IM_END,
    behind="\n",
)
"""The format of Qwen and SmolLM2, and of bases without a template."""

LLAMA3: Final = ChatFormat(
    name="llama3",
    label="Llama 3",
    markers=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    bos="<|begin_of_text|>",
    system=("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
    user=("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
    opening="<|start_header_id|>assistant<|end_header_id|>\n\n",
    end="<|eot_id|>",
    behind="",
)

GEMMA: Final = ChatFormat(
    name="gemma",
    label="Gemma",
    markers=("<bos>", "<start_of_turn>", "<end_of_turn>"),
    bos="<bos>",
    system=None,
    user=("<start_of_turn>user\n", "<end_of_turn>\n"),
    opening="<start_of_turn>model\n",
    end="<end_of_turn>",
    behind="\n",
)

MISTRAL: Final = ChatFormat(
    name="mistral",
    label="Mistral",
    markers=("<s>", "[INST]", "[/INST]", "</s>"),
    bos="<s>",
    system=None,
    user=("[INST]", "[/INST]"),
    opening="",
    end="</s>",
    behind="",
)
"""For byte-level tokenizers; SentencePiece adds the space before a completion itself."""

_SPACED_MISTRAL: Final = replace(MISTRAL, user=("[INST] ", "[/INST]"))
_KNOWN: Final = {
    IM_START: CHATML,
    "<|start_header_id|>": LLAMA3,
    "<start_of_turn>": GEMMA,
    "[INST] ": _SPACED_MISTRAL,
    "[INST]": MISTRAL,
}
"""Text in a template -> its format, tried in this order."""

TEMPLATE: Final = CHATML.template()


def format_of(template: str | None) -> ChatFormat:
    """Find the format of a chat template without rendering it; ChatML for None or an unknown template.

    Reasoning models are used without reasoning: prompts end with the empty thought that their template writes then.
    """
    text = "" if template is None else template.replace("\\n", "\n")
    chat = next((known for sign, known in _KNOWN.items() if sign in text), CHATML)
    return replace(chat, opening=chat.opening + _NO_THOUGHT) if chat is CHATML and _NO_THOUGHT in text else chat


def format_for(tokenizer: Tokenizer) -> ChatFormat:
    """Find the format of a tokenizer's chat template."""
    template = getattr(tokenizer, "chat_template", None)
    return format_of(template.get("default") if isinstance(template, dict) else template)


_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def find_system_prompt(template: str) -> str | None:
    """Return the default system prompt in a template built by `ChatFormat.template`; None for other templates."""
    chat = format_of(template)
    head, _, tail = chat.template("\0").partition("\0")
    literal = template.removeprefix(head).removesuffix(tail)
    system = _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], literal)
    return system if chat.template(system) == template else None


def render_prompt(system: str, request: str, control: tuple[str, ...] = (), chat: ChatFormat = CHATML) -> str:
    """Render a prompt up to the completion for `encode_cut`, with the `control` tokens of its tokenizer cut."""
    turns = (Turn("system", system), Turn("user", request))
    return chat.bos + chat.render_turns(turns, control) + chat.opening


def control_tokens(tokenizer: Tokenizer) -> tuple[str, ...]:
    """List the control tokens of a tokenizer, such as `<|im_end|>`, `<filename>` or `</s>`, long ones first."""
    added = tokenizer.added_tokens_decoder.values()
    written = {token.content for token in added if token.special or _MARKER.fullmatch(token.content)}
    written.update(format_for(tokenizer).markers)
    return tuple(sorted((text for text in written if len(text) > 1), key=lambda text: (-len(text), text)))


def encode_prompt(tokenizer: Tokenizer, system: str, request: str) -> tuple[int, ...]:
    """Encode a prompt up to the completion."""
    text = render_prompt(system, request, control_tokens(tokenizer), format_for(tokenizer))
    return tuple(encode_cut(tokenizer, text))


def encode(tokenizer: Tokenizer, system: str, request: str, reply: str) -> Encoded:
    """Encode a prompt and its completion, without trailing newlines and with the end of the turn."""
    text = cut(reply.rstrip("\n"), control_tokens(tokenizer)) + format_for(tokenizer).end
    return Encoded(encode_prompt(tokenizer, system, request), tuple(encode_cut(tokenizer, text)))


def cut(text: str, control: tuple[str, ...]) -> str:
    """Split each control token of a text in two, for `encode_cut`."""
    pieces, done = [], 0
    while control and (match := _pattern_for(control).search(text, done)) is not None:
        pieces.append(text[done : match.start() + 1])
        done = match.start() + 1
    return _CUT.join((*pieces, text[done:]))


def encode_cut(tokenizer: Tokenizer, text: str) -> list[int]:
    """Encode a text; with every tokenizer, a control token that was cut is encoded as plain characters.

    `split_special_tokens` of transformers would still match added tokens that are not special, and entries of the
    vocabulary.
    """
    first, *rest = text.split(_CUT)
    ids = tokenizer.encode(first, add_special_tokens=False) if first else []
    for part in rest:
        # SentencePiece adds a space before a text: encode the part after a newline, and drop the newline.
        before, both = (tokenizer.encode(shown, add_special_tokens=False) for shown in ("\n", f"\n{part}"))
        is_apart = both[: len(before)] == before
        ids += both[len(before) :] if is_apart else tokenizer.encode(part, add_special_tokens=False)
    return ids


def encode_plain(tokenizer: Tokenizer, text: str) -> list[int]:
    """Encode a text, with its control tokens as plain characters."""
    return encode_cut(tokenizer, cut(text, control_tokens(tokenizer)))


def encode_turns(tokenizer: Tokenizer, turns: Sequence[Turn]) -> tuple[int, ...]:
    """Encode a conversation up to the next completion, as in training; a final assistant turn starts it."""
    control, chat = control_tokens(tokenizer), format_for(tokenizer)
    ids: list[int] = []
    text = chat.bos
    given: list[Turn] = []
    *earlier, last = turns
    if last.role != "assistant":
        earlier = [*turns]
    for turn in earlier:
        if turn.role == "assistant":
            # As in training, no token spans the border between a prompt and its completion.
            text += chat.render_turns(given, control) + chat.opening
            ids += encode_cut(tokenizer, text)
            ids += encode_cut(tokenizer, cut(turn.text.rstrip("\n"), control) + chat.end)
            text, given = chat.behind, []
        else:
            given.append(turn)
    ids += encode_cut(tokenizer, text + chat.render_turns(given, control) + chat.opening)
    if last.role == "assistant":
        ids += encode_cut(tokenizer, cut(last.text, control))
    return tuple(ids)


def encode_text(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Encode a text for the model to continue, without chat turns."""
    return tuple(encode_cut(tokenizer, format_for(tokenizer).bos + cut(text, control_tokens(tokenizer))))


@cache
def _pattern_for(control: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, control)))
