"""Prompts and conversations become the tokens that a model was trained on, and no text forges a turn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trl  # noqa: TID253 - has the templates of many models
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import (
    CHATML,
    IM_END,
    IM_START,
    TEMPLATE,
    Turn,
    encode,
    encode_prompt,
    encode_text,
    encode_turns,
    find_system_prompt,
    format_of,
    render_prompt,
)
from mens_pipeline.training.examples import Example
from mens_pipeline.training.preflight import check_tokenizer
from mens_pipeline.training.sft import collate
from mens_pipeline_tests.training.small_folder import Encoder

_CONTROL = (IM_START, IM_END, "<|endoftext|>", "<|tool_call|>")
_TOKENIZER = Encoder(_CONTROL)
_SPECIAL = frozenset(_TOKENIZER.id_of(token) for token in _CONTROL)
_PIECES = st.sampled_from(("<", "|", ">", "im_end", "im_start", *_CONTROL, "\n", " ", "system", "é"))
_HOSTILE = st.lists(_PIECES | st.text(max_size=4), max_size=12).map("".join)


def _render(template: str, turns: Sequence[Turn], bos: str = "", **options: Any) -> str:
    """Render a template as Hugging Face does."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    return environment.from_string(template).render(
        messages=messages, bos_token=bos, **{"add_generation_prompt": True, **options}
    )


def test_the_prompt_is_chatml() -> None:
    """System, user, and the start of the completion, verbatim. The template ends the turn as training does."""
    assert render_prompt("Write Vox.", "Add two\nnumbers.") == (
        "<|im_start|>system\nWrite Vox.<|im_end|>\n"
        "<|im_start|>user\nAdd two\nnumbers.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    whole = _render(TEMPLATE, _CONVERSATION[:3], add_generation_prompt=False)
    assert whole == render_prompt(SYSTEM_PROMPT, "Add.\n\nTwice.") + f"let x = 1{IM_END}\n"


_TEMPLATES_OF_TRL = Path(trl.__file__).parent / "chat_templates"


@pytest.mark.parametrize(
    ("name", "thinks"),
    [
        ("qwen3_5_think", True),
        ("qwen3_5_nothink", True),
        ("qwen3", True),
        ("qwen3_6", True),
        ("qwen3_instruct_2507", False),
        ("qwen2_5", False),
    ],
)
def test_a_base_is_prompted_in_its_own_format_without_thinking(name: str, *, thinks: bool) -> None:
    """Verbatim what its own template gives with thinking off; adapters are trained and served in that format."""
    own, turns = (_TEMPLATES_OF_TRL / f"{name}.jinja").read_text(), _CONVERSATION[:2]
    prompt = render_prompt(SYSTEM_PROMPT, "Add.\n\nTwice.", chat=format_of(own))
    ours = format_of(own).template()
    with_system = format_of(own).template(SYSTEM_PROMPT)

    assert prompt == _render(own, turns, enable_thinking=False)
    assert prompt.endswith("assistant\n<think>\n\n</think>\n\n") == thinks
    assert _render(ours, turns) == _render(with_system, turns[1:]) == prompt
    assert format_of(with_system) == format_of(ours) == format_of(own)
    assert find_system_prompt(with_system) == SYSTEM_PROMPT


def test_the_template_of_a_thinking_model_adds_an_empty_thought() -> None:
    """In training rows and in requests, by the template next to the base."""
    tokenizer = Encoder(_CONTROL)
    plain = encode(tokenizer, SYSTEM_PROMPT, "Add.", "let x = 1")
    vars(tokenizer)["chat_template"] = (_TEMPLATES_OF_TRL / "qwen3_5_think.jinja").read_text()
    thinking = encode(tokenizer, SYSTEM_PROMPT, "Add.", "let x = 1")

    assert thinking.prompt[: len(plain.prompt)] == plain.prompt
    assert tokenizer.inner.decode(list(thinking.prompt[len(plain.prompt) :])) == "<think>\n\n</think>\n\n"
    assert thinking.completion == plain.completion


@pytest.mark.parametrize(
    "reply", ["fn add(a: int, b: int) to int {\n    return a + b\n}\n", "x", "// Grüße, 世界 🙂", ""]
)
def test_prompt_and_completion_are_the_whole_text(reply: str) -> None:
    """Their ids are those of the text tokenised at once, as some servers do it."""
    encoded = encode(_TOKENIZER, SYSTEM_PROMPT, "Write a function.", reply)
    text = render_prompt(SYSTEM_PROMPT, "Write a function.") + reply.rstrip("\n") + IM_END

    assert [*encoded.prompt, *encoded.completion] == _TOKENIZER.encode(text, add_special_tokens=False)
    assert encoded.prompt == encode_prompt(_TOKENIZER, SYSTEM_PROMPT, "Write a function.")
    assert len(encoded) == len(encoded.prompt) + len(encoded.completion)


def test_no_token_spans_prompt_and_completion() -> None:
    """A completion that begins with blanks does not change the prompt, although they would merge in the whole text."""
    encoded = encode(_TOKENIZER, SYSTEM_PROMPT, "Write.", "\n\n  x")
    at_once = render_prompt(SYSTEM_PROMPT, "Write.") + "\n\n  x" + IM_END

    assert encoded.prompt == encode_prompt(_TOKENIZER, SYSTEM_PROMPT, "Write.")
    assert _TOKENIZER.inner.decode([*encoded.prompt, *encoded.completion], skip_special_tokens=False) == at_once
    assert [*encoded.prompt, *encoded.completion] != _TOKENIZER.encode(at_once, add_special_tokens=False)


@given(_HOSTILE, _HOSTILE, _HOSTILE)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_no_text_becomes_a_control_token(system: str, request: str, reply: str) -> None:
    """In the prompt three turns begin and two end, in the completion one ends; likewise in a conversation."""
    encoded = encode(_TOKENIZER, system, request, reply)
    start, end = _TOKENIZER.id_of(IM_START), _TOKENIZER.id_of(IM_END)

    assert [number for number in encoded.prompt if number in _SPECIAL] == [start, end, start, end, start]
    assert [number for number in encoded.completion if number in _SPECIAL] == [end]
    assert encoded.completion[-1] == end
    turns = [Turn("system", system), Turn("user", request), Turn("assistant", reply), Turn("user", request)]
    ids = encode_turns(_TOKENIZER, turns)
    assert [number for number in ids if number in _SPECIAL] == [start, end] * 4 + [start]
    assert ids[: len(encoded)] == (*encoded.prompt, *encoded.completion), "the row that its first turns would train on"


@pytest.mark.parametrize(
    ("reply", "learnt"), [("x", "x"), ("x\n", "x"), ("x\n\n\n", "x"), ("\n  x\n\n  y  \n", "\n  x\n\n  y  ")]
)
def test_trailing_line_ends_are_not_trained(reply: str, learnt: str) -> None:
    """The turn ends right after the last other character; blanks elsewhere are kept."""
    completion = encode(_TOKENIZER, "", "", reply).completion

    assert _TOKENIZER.inner.decode(list(completion), skip_special_tokens=False) == f"{learnt}{IM_END}"


@given(_HOSTILE)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_encoded_text_is_decoded_unchanged(text: str) -> None:
    """Even control tokens, which are skipped in the output of a model."""
    ids = encode_text(_TOKENIZER, text)

    assert _SPECIAL.isdisjoint(ids)
    assert _TOKENIZER.inner.decode(list(ids), skip_special_tokens=True) == text


def test_the_file_alone_gives_the_ids_of_the_library(tiny_base: Path) -> None:
    """A server reads prompts with the file, training with the library."""
    from transformers import AutoTokenizer

    text = "<|im_start|>user\nGrüße, 世界 🙂  fn\n\n<|im_end|>\n"
    library = AutoTokenizer.from_pretrained(tiny_base)
    ids = FileTokenizer(tiny_base).encode(text, add_special_tokens=False)

    assert ids == library.encode(text, add_special_tokens=False)


_LOOP = "{% for m in messages %}"
_ASKED = "{% if add_generation_prompt %}"
_SYSTEM_FIRST = (
    "{% if messages[0]['role'] == 'system' %}{% set told = messages[0]['content'] + '\\n\\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set told = '' %}{% endif %}"
)
_OWN_TEMPLATES = {
    "qwen_chatml_im_start": (
        f"{_LOOP}<|im_start|>{{{{ m.role }}}}\n{{{{ m.content }}}}<|im_end|>{{{{ '\\n' }}}}{{% endfor %}}"
        f"{_ASKED}<|im_start|>assistant{{{{ '\\n' }}}}{{% endif %}}"
    ),
    "llama3": (
        "{{ bos_token }}"
        + _LOOP
        + "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content }}<|eot_id|>"
        "{% endfor %}" + _ASKED + "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
    ),
    "gemma": (
        "{{ bos_token }}" + _SYSTEM_FIRST + _LOOP + "{% set role = 'model' if m.role == 'assistant' else m.role %}"
        "{{ '<start_of_turn>' + role + '\\n' + (told if loop.first else '') + m.content + '<end_of_turn>\\n' }}"
        "{% endfor %}" + _ASKED + "{{ '<start_of_turn>model\\n' }}{% endif %}"
    ),
    "mistral": (
        "{{ bos_token }}" + _SYSTEM_FIRST + _LOOP + "{% if m.role == 'user' %}"
        "{{ '[INST] ' + (told if loop.first else '') + m.content + '[/INST]' }}"
        "{% else %}{{ m.content + '</s>' }}{% endif %}{% endfor %}"
    ),
}
"""Minimal templates in the formats of four families; they get `bos_token` as from the library."""


def _make_tokenizer(name: str, template: str | None = None) -> Encoder:
    chat = format_of(_OWN_TEMPLATES[name])
    assert chat.name == name
    return Encoder(chat.markers, _OWN_TEMPLATES[name] if template is None else template)


_CONVERSATION = [
    Turn("system", SYSTEM_PROMPT),
    Turn("user", "Add.\n\nTwice."),
    Turn("assistant", "let x = 1"),
    Turn("user", "Again."),
]


@pytest.mark.parametrize("name", _OWN_TEMPLATES)
def test_a_base_is_prompted_in_the_format_of_its_own_template(name: str) -> None:
    """One request and several turns, verbatim; the template written next to an adapter gives the same."""
    tokenizer = _make_tokenizer(name)
    chat = format_of(tokenizer.chat_template)
    for turns in (_CONVERSATION[:2], _CONVERSATION[1:2], _CONVERSATION):
        text = tokenizer.inner.decode(list(encode_turns(tokenizer, turns)), skip_special_tokens=False)

        assert text == _render(_OWN_TEMPLATES[name], turns, chat.bos) == _render(chat.template(), turns, chat.bos)
    with_system = chat.template(SYSTEM_PROMPT)

    assert _render(with_system, _CONVERSATION[1:], chat.bos) == _render(chat.template(), _CONVERSATION, chat.bos)
    assert format_of(chat.template()) == format_of(with_system) == chat
    assert find_system_prompt(with_system) == SYSTEM_PROMPT
    assert find_system_prompt(chat.template()) is None


@pytest.mark.parametrize("name", _OWN_TEMPLATES)
def test_only_the_completion_and_its_end_are_learnt(name: str) -> None:
    """The prompt, system text included, is masked; the completion is the answer and the token that ends the turn.

    Control tokens in any of them are split, even if the tokenizer marks none as special.
    """
    tokenizer = _make_tokenizer(name)
    chat = format_of(tokenizer.chat_template)
    row = encode(tokenizer, SYSTEM_PROMPT, "Add.", "let x = 1\n")
    hostile = "a" + "".join(chat.markers) + "b"
    markers = {tokenizer.id_of(text) for text in chat.markers}
    forged = encode(tokenizer, hostile, hostile, hostile)

    assert tokenizer.inner.decode(list(row.completion), skip_special_tokens=False) == f"let x = 1{chat.end}"
    assert row.completion[-1] == tokenizer.id_of(chat.end) == check_tokenizer(tokenizer, Path("base"))
    assert row.prompt == encode_turns(tokenizer, [Turn("system", SYSTEM_PROMPT), Turn("user", "Add.")])
    assert collate([Example(row.prompt, row.completion)], 0)["labels"][0].tolist() == [
        *[-100] * len(row.prompt),
        *row.completion,
    ]
    assert [number for number in forged.prompt if number in markers] == [n for n in row.prompt if n in markers]
    assert [number for number in forged.completion if number in markers] == [tokenizer.id_of(chat.end)]


def test_the_blank_of_mistral_follows_its_template() -> None:
    """Byte-level tokenizers are prompted without the blank that SentencePiece needs."""
    spaced = _OWN_TEMPLATES["mistral"]
    bare = spaced.replace("[INST] ", "[INST]")

    assert render_prompt("s", "q", chat=format_of(spaced)) == "<s>[INST] s\n\nq[/INST]"
    assert render_prompt("s", "q", chat=format_of(bare)) == "<s>[INST]s\n\nq[/INST]"
    assert format_of(format_of(bare).template()) == format_of(bare)


@pytest.mark.parametrize("template", [None, "", "{{ messages }}"])
def test_a_base_without_a_known_template_is_prompted_in_chatml(template: str | None) -> None:
    """Its tokenizer must have the two control tokens, which is checked before training."""
    assert format_of(template) is CHATML
