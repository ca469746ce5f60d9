"""The one place where a request becomes the text and the tokens that a model sees: training, evaluation, serving.

A base is asked in the format of its own chat template: ChatML, Llama 3, Gemma or Mistral; without one, in ChatML
(`format_of`). Prompt and completion are tokenised apart, so that no token spans the border between them, and what a
user writes can never forge a turn.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal, Protocol

IM_START: Final = "<|im_start|>"
IM_END: Final = "<|im_end|>"

_MARKER: Final = re.compile(r"<(?=\|[^\s|<>]{1,40}\|>)")
"""The first sign of anything that a tokenizer may take for a control token."""

Role = Literal["system", "user", "assistant"]
FormatName = Literal["qwen_chatml_im_start", "llama3", "gemma", "mistral"]


class ControlToken(Protocol):
    """Entry of a tokenizer for a token that was added to its vocabulary."""

    @property
    def content(self) -> str:
        """Text of the token."""

    @property
    def special(self) -> bool:
        """Whether it steers the model, rather than being a word."""


class Tokenizer(Protocol):
    """Methods of a Hugging Face tokenizer that are used."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, ControlToken]:
        """Its added tokens by their ids."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Message of one role; control tokens in its text are broken when it is shown to a model."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt and its completion as ids; the end of its turn belongs to the completion, which the model learns."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of tokens of both."""
        return len(self.prompt) + len(self.completion)


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """Chat format of a family of models.

    Attributes:
        label: As people know it.
        markers: Its control tokens; a base has to know each as one token.
        bos: What a conversation begins with.
        system: Before and behind a system text; None where it stands in the next user turn, above an empty line.
        user: Before and behind a request.
        opening: Before a completion.
        end: The last token of a completion.
        behind: What stands between a completion and the next turn.
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
        """Build the chat template of Hugging Face: it gives the text of `render_prompt`, and `format_of` recognises it.

        `system` comes before a conversation that brings no system text: a model that is asked without the prompt of its
        training completes worse, and most clients send none.
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
        """Write Jinja for all turns; where the system has none, its texts are held back for the next of the user."""
        if self.system is not None:  # turns name their role, each in the same way
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
        """Write turns of the system and of the user; control tokens in them are broken."""
        text = held = ""
        for turn in turns:
            shown = escape(turn.text, control)
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
"""Text that templates of reasoning models put before a completion without reasoning."""


def _literal(text: str) -> str:
    """Write a text as a literal of Jinja."""
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
"""Of Qwen and SmolLM2, and of bases without a template."""

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
"""With a tokenizer of bytes; one of SentencePiece puts a blank before a completion by itself."""

_SPACED_MISTRAL: Final = replace(MISTRAL, user=("[INST] ", "[/INST]"))
_KNOWN: Final = {
    IM_START: CHATML,
    "<|start_header_id|>": LLAMA3,
    "<start_of_turn>": GEMMA,
    "[INST] ": _SPACED_MISTRAL,
    "[INST]": MISTRAL,
}
"""Text that a template of a format contains, tried in this order -> the format."""

TEMPLATE: Final = CHATML.template()


def format_of(template: str | None) -> ChatFormat:
    """Return the format of a chat template, which is searched and never rendered; ChatML for none and for any other.

    A model that was made to think does so unless its prompt holds an empty thought: its template writes one where
    thinking is switched off. It is trained, evaluated and served in that form.
    """
    text = "" if template is None else template.replace("\\n", "\n")
    chat = next((known for sign, known in _KNOWN.items() if sign in text), CHATML)
    return replace(chat, opening=chat.opening + _NO_THOUGHT) if chat is CHATML and _NO_THOUGHT in text else chat


def format_for(tokenizer: Tokenizer) -> ChatFormat:
    """Return the format that the template of a tokenizer asks for."""
    template = getattr(tokenizer, "chat_template", None)
    return format_of(template.get("default") if isinstance(template, dict) else template)


_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def find_system_prompt(template: str) -> str | None:
    """Return the system prompt that a chat template of ours begins with; None where it is none of ours."""
    chat = format_of(template)
    head, _, tail = chat.template("\0").partition("\0")
    literal = template.removeprefix(head).removesuffix(tail)
    system = _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], literal)
    return system if chat.template(system) == template else None


def render_prompt(system: str, request: str, control: tuple[str, ...] = (), chat: ChatFormat = CHATML) -> str:
    """Render a prompt: the text up to where the completion begins. Control tokens in the request are broken.

    `control` is what the tokenizer takes for control tokens beside those that look like `<|im_end|>`.
    """
    turns = (Turn("system", system), Turn("user", request))
    return chat.bos + chat.render_turns(turns, control) + chat.opening


def control_tokens(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the control tokens of a tokenizer, such as `<|im_end|>`, `<filename>` or `</s>`; long ones first."""
    written = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    # Those that look like `<|im_end|>` are broken by `escape` whatever the tokenizer calls them.
    written.update(text for text in format_for(tokenizer).markers if not _MARKER.match(text))
    return tuple(sorted((text for text in written if len(text) > 1), key=lambda text: (-len(text), text)))


def encode_prompt(tokenizer: Tokenizer, system: str, request: str) -> tuple[int, ...]:
    """Encode a prompt: the ids up to where the completion begins."""
    text = render_prompt(system, request, control_tokens(tokenizer), format_for(tokenizer))
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def encode(tokenizer: Tokenizer, system: str, request: str, reply: str) -> Encoded:
    """Encode a prompt and its completion as ids, without line ends at its end, with the end of the turn."""
    text = escape(reply.rstrip("\n"), control_tokens(tokenizer)) + format_for(tokenizer).end
    completion = tokenizer.encode(text, add_special_tokens=False)
    return Encoded(encode_prompt(tokenizer, system, request), tuple(completion))


def escape(text: str, control: tuple[str, ...] = ()) -> str:
    """Break control tokens so that a text can neither begin nor end a turn: `<|im_end|>` becomes `< |im_end|>`."""
    broken = _MARKER.sub("< ", text)
    return _pattern_for(control).sub(lambda match: f"{match[0][0]} {match[0][1:]}", broken) if control else broken


def encode_turns(tokenizer: Tokenizer, turns: Sequence[Turn]) -> tuple[int, ...]:
    """Encode a conversation up to where the next completion begins, or goes on.

    The tokens are those of training: of a system text and a request alone, and of every earlier completion. A last turn
    of the model itself is the beginning of its completion.
    """
    control, chat = control_tokens(tokenizer), format_for(tokenizer)
    ids: list[int] = []
    text = chat.bos
    given: list[Turn] = []
    *earlier, last = turns
    if last.role != "assistant":
        earlier = [*turns]
    for turn in earlier:
        if turn.role == "assistant":
            # As in training, where no token spans the border between a prompt and its completion.
            text += chat.render_turns(given, control) + chat.opening
            ids += tokenizer.encode(text, add_special_tokens=False)
            ids += tokenizer.encode(escape(turn.text.rstrip("\n"), control) + chat.end, add_special_tokens=False)
            text, given = chat.behind, []
        else:
            given.append(turn)
    ids += tokenizer.encode(text + chat.render_turns(given, control) + chat.opening, add_special_tokens=False)
    if last.role == "assistant":
        ids += tokenizer.encode(escape(last.text, control), add_special_tokens=False)
    return tuple(ids)


def encode_text(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Encode a text that goes on, without any conversation around it; control tokens in it are broken."""
    begun = format_for(tokenizer).bos + escape(text, control_tokens(tokenizer))
    return tuple(tokenizer.encode(begun, add_special_tokens=False))


@cache
def _pattern_for(control: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, control)))
