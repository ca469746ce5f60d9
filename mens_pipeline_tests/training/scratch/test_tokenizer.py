"""VoxTokenizer as a tokenizer of Hugging Face."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language.vox_tokenizer import CHARACTERS, COMPOUNDS, VOCABULARY, encode
from mens_pipeline.training.chat import render_prompt

pytestmark = pytest.mark.filterwarnings("ignore")

_TEXTS = st.lists(st.sampled_from([*COMPOUNDS, *CHARACTERS, "[PAD]", "[UNK]", "[EOS]"])).map("".join)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """The one there is."""
    from mens_pipeline.training.scratch.tokenizer import VoxTokenizer  # noqa: PLC0415 - loads the stack

    return VoxTokenizer()


@pytest.mark.seed_row(53)
def test_it_is_the_table(tokenizer: Any) -> None:
    """133 ids, with the control ids where they belong."""
    assert len(tokenizer) == tokenizer.vocab_size == 133
    assert tokenizer.get_vocab() == {token: number for number, token in enumerate(VOCABULARY)}
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert tokenizer.convert_ids_to_tokens([0, 98, 132]) == ["[PAD]", "workflow", "is"]


@settings(deadline=None)
@given(_TEXTS)
def test_what_is_supported_comes_back(tokenizer: Any, text: str) -> None:
    """Both ways through the library, the same ids as without it; `[EOS]` in a text never ends it."""
    ids = tokenizer(text)["input_ids"]

    assert ids == list(encode(text))
    assert tokenizer.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True) == text


def test_unknown_characters_are_shown(tokenizer: Any) -> None:
    """By their name, or as U+FFFD when control tokens are left out; an end and padding only by name."""
    ids = [*tokenizer("a é")["input_ids"], 2, 0]

    assert tokenizer.decode(ids) == "a [UNK][EOS][PAD]"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a \N{REPLACEMENT CHARACTER}"
    assert tokenizer.decode(5) == '"'
    assert tokenizer.decode(1, skip_special_tokens=True) == "\N{REPLACEMENT CHARACTER}"


def test_batches_are_padded_and_cut(tokenizer: Any) -> None:
    """To the longest, on the right, with a mask; to a length when one is asked for; an empty text has no token."""
    batch = tokenizer(["fn a", "", "abcdef"], padding=True, return_tensors="pt")

    assert batch["input_ids"].tolist() == [[100, 3, 68, 0, 0, 0], [0] * 6, [68, 69, 70, 71, 72, 73]]
    assert batch["attention_mask"].sum(dim=1).tolist() == [3, 0, 6]
    assert tokenizer("abcdef", truncation=True, max_length=2)["input_ids"] == [68, 69]


def test_a_conversation_has_the_form_that_trains(tokenizer: Any) -> None:
    """The template of the library and the project's own renderer agree, a turn's marker is one id."""
    messages = [{"role": "system", "content": "You write Vox."}, {"role": "user", "content": "Write a type."}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    assert text == render_prompt("You write Vox.", "Write a type.")
    assert tokenizer(text)["input_ids"].count(VOCABULARY.index("<|im_start|>")) == 3


def test_it_is_saved_and_loaded(tokenizer: Any, tmp_path: Path) -> None:
    """With its settings; another table in the file is refused."""
    tokenizer.save_pretrained(tmp_path)
    loaded = type(tokenizer).from_pretrained(tmp_path)
    text = 'fn a() to str {\n    return "[EOS]\t"\n}\n'

    assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"] == list(encode(text))
    assert loaded.decode(loaded(text)["input_ids"]) == text

    vocabulary = tmp_path / "vocab.json"
    vocabulary.write_text(json.dumps({**json.loads(vocabulary.read_text()), "fn": 99}))
    with pytest.raises(ConfigurationError, match=r"not the table of docs/vox-tokenizer\.md\. Train the model anew"):
        type(tokenizer).from_pretrained(tmp_path)
