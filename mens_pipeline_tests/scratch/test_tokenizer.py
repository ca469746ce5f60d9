"""VoxTokenizer: its vocabulary, greedy matching, decoding, and its counterpart in transformers."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import render_prompt
from mens_pipeline.scratch.tokenizer import (
    CHARACTERS,
    COMPOUNDS,
    EOS,
    PAD,
    UNK,
    VOCABULARY,
    decode,
    encode,
    transformers_tokenizer,
)
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.language.examples import golden_programs
from mens_pipeline_tests.reference import compounds_text

pytestmark = pytest.mark.filterwarnings("ignore")

_SUPPORTED = st.text(alphabet=CHARACTERS + "\n\t")
_PIECES = st.lists(st.sampled_from([*COMPOUNDS, *CHARACTERS, "[PAD]", "[UNK]", "[EOS]"])).map("".join)


def _encode_greedily(text: str) -> list[int]:
    ids, place = [], 0
    while place < len(text):
        fitting = [compound for compound in COMPOUNDS if text.startswith(compound, place)]
        token = max(fitting, key=len, default=text[place])
        ids.append(VOCABULARY.index(token) if token in VOCABULARY else UNK)
        place += len(token)
    return ids


@pytest.mark.seed_row(53)
def test_the_vocabulary_has_133_ids_in_order() -> None:
    """Three control ids, 95 characters whose id is their byte minus 29, and 35 compounds; all distinct."""
    assert VOCABULARY[:3] == ("[PAD]", "[UNK]", "[EOS]")
    assert (PAD, UNK, EOS) == (0, 1, 2)
    assert [VOCABULARY[byte - 32 + 3] for byte in range(32, 127)] == [chr(byte) for byte in range(32, 127)]
    assert VOCABULARY[98:] == COMPOUNDS
    assert len(COMPOUNDS) == 35
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 133
    assert {"workflow", "actor", "fn", "component", "\n", "\t"} <= set(COMPOUNDS)


@pytest.mark.seed_row(53)
@given(_SUPPORTED | _PIECES)
def test_supported_text_is_decoded_unchanged(text: str) -> None:
    ids = encode(text)

    assert decode(ids) == text
    assert ids.count(UNK) == 0
    assert PAD not in ids
    assert EOS not in ids


@given(st.text() | _PIECES)
def test_matching_is_greedy(text: str) -> None:
    assert list(encode(text)) == _encode_greedily(text)


@given(st.text())
def test_every_other_character_is_one_unknown_token(text: str) -> None:
    ids = encode(text)
    foreign = [sign for sign in text if sign not in CHARACTERS + "\n\t"]

    assert ids.count(UNK) == len(foreign)
    assert decode(ids) == "".join("\N{REPLACEMENT CHARACTER}" if sign in foreign else sign for sign in text)


def test_golden_programs_get_shorter() -> None:
    """Every character has an id, and a token is 1.29 characters of Vox on average."""
    texts = [text for text in golden_programs().values() if text.isascii()]
    tokens = [encode(text) for text in texts]

    assert sum(ids.count(UNK) for ids in tokens) == 0
    assert sum(map(len, texts)) / sum(map(len, tokens)) > 1.27


def test_the_page_lists_the_compounds() -> None:
    """`docs/upstream.md` names each with its id."""
    page = (PROJECT_ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")

    assert compounds_text() in page
    assert len(re.findall(r"(?:^| )\d+ \S", compounds_text(), re.MULTILINE)) == len(COMPOUNDS)
    assert "98 workflow " in page


@pytest.mark.parametrize("ids", [[-1], [5, -100], [133], [10**9]])
def test_an_invalid_id_is_an_error(ids: list[int]) -> None:
    """Negative ones too: -100, which labels contain, is not an index from the end. EOS and PAD have no text."""
    with pytest.raises(IndexError):
        decode(ids)
    assert not decode([])
    assert decode([*encode("fn"), EOS, PAD, PAD]) == "fn"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers_tokenizer()


@pytest.mark.seed_row(53)
def test_transformers_has_the_same_vocabulary(tokenizer: Any) -> None:
    assert len(tokenizer) == tokenizer.vocab_size == 133
    assert tokenizer.get_vocab() == {token: number for number, token in enumerate(VOCABULARY)}
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert tokenizer.convert_ids_to_tokens([0, 98, 132]) == ["[PAD]", "workflow", "is"]
    ids = [*tokenizer("a é")["input_ids"], 2, 0]
    assert tokenizer.decode(ids) == "a [UNK][EOS][PAD]"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a "


@settings(deadline=None)
@given(st.text() | _PIECES)
def test_transformers_gives_the_same_ids(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text)["input_ids"]

    assert ids == list(encode(text))
    assert UNK in ids or tokenizer.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True) == text


def test_batches_are_padded_and_cut(tokenizer: Any) -> None:
    batch = tokenizer(["fn a", "", "abcdef"], padding=True, return_tensors="pt")

    assert batch["input_ids"].tolist() == [[100, 3, 68, 0, 0, 0], [0] * 6, [68, 69, 70, 71, 72, 73]]
    assert batch["attention_mask"].sum(dim=1).tolist() == [3, 0, 6]
    assert tokenizer("abcdef", truncation=True, max_length=2)["input_ids"] == [68, 69]


def test_the_chat_template_gives_the_prompt_of_training(tokenizer: Any) -> None:
    messages = [{"role": "system", "content": "You write Vox."}, {"role": "user", "content": "Write a type."}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    assert text == render_prompt("You write Vox.", "Write a type.")
    assert tokenizer(text)["input_ids"].count(VOCABULARY.index("<|im_start|>")) == 3


def test_a_saved_tokenizer_gives_the_same_ids(tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False)
    text = 'fn a() to str {\n    return "[EOS]\t"\n}\n'

    assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"] == list(encode(text))
    assert loaded.decode(loaded(text)["input_ids"]) == text
    assert loaded.chat_template == tokenizer.chat_template
    assert len(loaded) == 133
    text = text.replace("[EOS]", "")
    assert FileTokenizer(tmp_path).encode(text, add_special_tokens=False) == list(encode(text))
