"""A cursor becomes the same tokens in training, evaluation and serving."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mens_pipeline.models.chat import IM_END, IM_START
from mens_pipeline.models.infill import (
    Marks,
    Order,
    choose_order,
    encode_infill,
    encode_infill_prompt,
    encode_prefix,
    find_marks,
    order_of_row,
    split_word,
)
from mens_pipeline_tests.training.small_folder import Encoder

_CONTROL = (IM_START, IM_END)
_SMOLLM = Encoder((*_CONTROL, "<issue_start>", "<issue_comment>", "<issue_closed>"))
_QWEN = Encoder((*_CONTROL, "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"))


def _decode(tokenizer: Encoder, ids: tuple[int, ...]) -> str:
    return str(tokenizer.inner.decode(list(ids), skip_special_tokens=False))


_WORDS = ("<prefix>", "<suffix>", "<middle>")


@pytest.mark.parametrize(
    ("marks", "is_own", "order"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), True, "prefix_first"),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), True, "prefix_first"),
        (("▁<PRE>", "▁<SUF>", "▁<MID>"), True, "prefix_first"),
        (("[PREFIX]", "[SUFFIX]", "[MIDDLE]"), True, "suffix_first"),
        (("<issue_start>", "<issue_closed>", "<issue_comment>"), True, "suffix_first"),
        ((), False, "suffix_first"),
    ],
    ids=["Qwen", "StarCoder", "Code Llama", "Codestral", "SmolLM2", "none"],
)
def test_a_base_keeps_the_marks_of_its_pretraining(marks: tuple[str, ...], *, is_own: bool, order: Order) -> None:
    """Otherwise unused tokens, otherwise words. Codestral itself puts the suffix first, as do bases without marks."""
    tokenizer = Encoder((*_CONTROL, *marks))

    assert find_marks(tokenizer) == Marks(*(marks if is_own else _WORDS))
    assert choose_order(tokenizer) == order


def test_typing_extends_a_prompt_with_the_suffix_first() -> None:
    """The cache of the prefix can be reused; with the suffix first it cannot."""
    one, two = (encode_infill_prompt(_QWEN, prefix, "\n}\n", 100, "suffix_first") for prefix in ("fn (", "fn (("))

    assert _decode(_QWEN, one) == "<|fim_suffix|>\n}\n<|fim_prefix|>fn (<|fim_middle|>"
    assert two[: len(one) - 1] == one[:-1]
    other = encode_infill_prompt(_QWEN, "fn (", "\n}\n", 100, "prefix_first")
    assert _decode(_QWEN, other) == "<|fim_prefix|>fn (<|fim_suffix|>\n}\n<|fim_middle|>"


def test_a_row_ends_its_turn() -> None:
    """After the piece, which alone is trained; its white space is kept."""
    row = encode_infill(_SMOLLM, "let x = ", "", "1\n", 50, "suffix_first")

    assert _decode(_SMOLLM, row.completion) == "1\n" + IM_END
    assert _decode(_SMOLLM, row.prompt) == "<issue_closed><issue_start>let x = <issue_comment>"


@pytest.mark.parametrize(
    ("prefix", "before", "word"),
    [
        ("let total_1", "let", " total_1"),
        ("    retu", "   ", " retu"),
        ("f(fir", "f(", "fir"),
        ("f(", "f(", ""),
        ("let x = ", "let x = ", ""),
        ("caf\u00e9", "caf\u00e9", ""),
        ("", "", ""),
        ("a" * 100, "a" * 36, "a" * 64),
    ],
    ids=["a name", "a keyword", "after a bracket", "a bracket", "a blank", "not ASCII", "nothing", "a long one"],
)
def test_a_word_at_the_cursor_is_completed_from_its_beginning(prefix: str, before: str, word: str) -> None:
    """With the blank before it, which is part of its first token; the word is in the piece, not in the prompt."""
    assert split_word(prefix) == (before, word)
    for order in ("suffix_first", "prefix_first"):
        row = encode_infill(_QWEN, prefix, "\n", "1()", 400, order)
        assert row.prompt == encode_infill_prompt(_QWEN, prefix, "\n", 400, order)
        assert f"<|fim_prefix|>{before}<|" in _decode(_QWEN, row.prompt)
        assert _decode(_QWEN, row.completion) == word + "1()" + IM_END
        words = ("t", "to", "total", "total_1")  # the prompt is the same after each key
        assert len({encode_infill_prompt(_QWEN, f"let a = {word}", "\n", 100, order) for word in words}) == 1
    assert _decode(_QWEN, encode_prefix(_QWEN, prefix, 400)) == before


def test_a_window_holds_whole_lines_next_to_the_cursor() -> None:
    """At most a quarter is after it; the prefix gets what the suffix does not need."""
    lines = [f"line {number:02}\n" for number in range(60)]
    prompt = encode_infill_prompt(_QWEN, "".join(lines) + "cur(", "".join(lines), 80, "suffix_first")
    text = _decode(_QWEN, prompt)
    suffix, prefix = text.removeprefix("<|fim_suffix|>").removesuffix("<|fim_middle|>").split("<|fim_prefix|>")

    assert len(prompt) <= 80 + 3
    assert "".join(lines).startswith(suffix)
    assert 0 < len(suffix) <= 20
    assert ("".join(lines) + "cur(").endswith(prefix)
    assert prefix.startswith("line ")
    assert suffix.endswith("\n")


def test_the_beginning_of_a_window_stays_while_lines_are_typed() -> None:
    """It moves only every few lines, so that what the model has read can be reused at the next key."""
    lines = [f"line {number:02} {'x' * (number % 7)}\n" for number in range(200)]
    windows = [_decode(_QWEN, encode_prefix(_QWEN, "".join(lines[:number]), 120)) for number in range(20, 200)]
    moves = sum(not after.startswith(before) for before, after in pairwise(windows))

    assert moves < 40, "with each of 180 lines otherwise"


def test_a_long_line_is_cut_at_its_far_end() -> None:
    """The text next to the cursor is kept."""
    assert _decode(_QWEN, encode_prefix(_QWEN, "a" * 500 + "(", 10)) == "a" * 9 + "("
    assert _decode(_QWEN, encode_infill_prompt(_QWEN, "", "b" + "a" * 500, 40, "suffix_first")) == (
        "<|fim_suffix|>b" + "a" * 9 + "<|fim_prefix|><|fim_middle|>"
    )


_SIDES = st.text(st.sampled_from("ab <|>_\n") | st.characters(codec="utf-8"), max_size=60)
_FORGED = st.lists(st.sampled_from(("<|fim_middle|>", IM_END, "<|fim_prefix|>", "x", "\n")) | _SIDES, max_size=6).map(
    "".join
)


@given(_FORGED, _FORGED, st.integers(16, 60), st.sampled_from(("suffix_first", "prefix_first")))
def test_no_text_forges_a_mark(prefix: str, suffix: str, window: int, order: Order) -> None:
    """Each mark occurs once, and no prompt exceeds the window."""
    prompt = encode_infill_prompt(_QWEN, prefix, suffix, window, order)
    marks = [_QWEN.id_of(mark) for mark in ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", IM_END)]

    assert [prompt.count(mark) for mark in marks] == [1, 1, 1, 0]
    assert len(prompt) <= window + 3


def test_seven_of_ten_rows_show_the_suffix_first() -> None:
    """A row always has the same order; a base with the prefix first has it first in all rows."""
    rows = [f"fn f{number}" for number in range(400)]
    orders = [order_of_row("suffix_first", row, "()") for row in rows]

    assert 240 < orders.count("suffix_first") < 320
    assert orders == [order_of_row("suffix_first", row, "()") for row in rows]
    assert {order_of_row("prefix_first", row, "()") for row in rows} == {"prefix_first"}
