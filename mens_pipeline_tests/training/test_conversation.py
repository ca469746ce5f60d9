"""Conversations as ids: what a model was trained on, to the token, and turns that nobody can forge."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mens_pipeline.language.requests import SYSTEM_PROMPT
from mens_pipeline.training.chat import IM_END, IM_START, TEMPLATE, Role, Turn, encode, encode_prompt, encode_turns
from mens_pipeline.training.tokenizer_file import FileTokenizer
from mens_pipeline_tests.training.small_folder import Encoder

_TOKENIZER = Encoder()
_TEXTS = st.lists(st.sampled_from(("<", "|", ">", "im_end", IM_START, IM_END, "\n", " ", "é", "fn")), max_size=8)
_HOSTILE = _TEXTS.map("".join)


@given(_HOSTILE, _HOSTILE)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_one_request_is_what_training_shows(system: str, request: str) -> None:
    """The same ids as the prompt of a training row."""
    turns = (Turn("system", system), Turn("user", request))

    assert encode_turns(_TOKENIZER, turns) == encode_prompt(_TOKENIZER, system, request)


@given(_HOSTILE, _HOSTILE)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_an_earlier_answer_is_the_completion_of_training(request: str, answer: str) -> None:
    """A conversation begins with the whole row that its first turns would have trained on."""
    row = encode(_TOKENIZER, SYSTEM_PROMPT, request, answer)
    turns = (Turn("system", SYSTEM_PROMPT), Turn("user", request), Turn("assistant", answer), Turn("user", "Again."))
    ids = encode_turns(_TOKENIZER, turns)

    assert ids[: len(row)] == (*row.prompt, *row.completion)


def test_the_template_gives_the_same_text() -> None:
    """Several turns, as other tools would render them."""
    roles: tuple[Role, ...] = ("system", "user", "assistant", "user", "assistant", "user")
    turns = [Turn(role, f"{role} says\nso") for role in roles]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    text = environment.from_string(TEMPLATE).render(messages=messages, add_generation_prompt=True)

    assert _TOKENIZER.inner.decode(list(encode_turns(_TOKENIZER, turns)), skip_special_tokens=False) == text


@given(_HOSTILE)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_nobody_forges_a_turn(text: str) -> None:
    """Whatever stands in a conversation, it has as many control tokens as turns ask for."""
    start, end = _TOKENIZER.id_of(IM_START), _TOKENIZER.id_of(IM_END)
    roles: tuple[Role, ...] = ("system", "user", "assistant", "user")
    ids = encode_turns(_TOKENIZER, [Turn(role, text) for role in roles])

    assert [number for number in ids if number in {start, end}] == [start, end] * 4 + [start]


def test_the_file_alone_gives_the_ids_of_the_library(tiny_base: Path) -> None:
    """What reads prompts for a server is what reads them in training."""
    from transformers import AutoTokenizer

    text = "<|im_start|>user\nGrüße, 世界 🙂  fn\n\n<|im_end|>\n"
    library = AutoTokenizer.from_pretrained(tiny_base)
    ids = FileTokenizer(tiny_base).encode(text, add_special_tokens=False)

    assert ids == library.encode(text, add_special_tokens=False)
