"""Text in pieces: never half a character, nothing behind a stop text, and all pieces together are the whole."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.serving.generation import TextStream

_BYTES = st.lists(st.sampled_from([*b"aX\n ", *"é€🙂".encode(), 0xFF, 0xC3]), max_size=24)
_LEAST_BYTES = st.lists(st.integers(0, 255), max_size=24)
_STOPS = st.lists(st.sampled_from(("aX", "X\n", "€", "aaa", "aXa")), max_size=2)


def _of_bytes(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def _pieces(tokens: Sequence[int], stop: Sequence[str] = (), decode: Any = _of_bytes) -> list[str]:
    stream = TextStream(decode, stop)
    pieces = []
    for token in tokens:
        pieces.append(stream.feed(token))
        if stream.is_stopped:
            return pieces
    return [*pieces, stream.end()]


@given(_BYTES | _LEAST_BYTES)
@settings(max_examples=500, deadline=None, derandomize=True)
def test_all_pieces_are_the_whole(tokens: list[int]) -> None:
    assert "".join(_pieces(tokens)) == _of_bytes(tokens)


@given(_BYTES, _STOPS)
@settings(max_examples=500, deadline=None, derandomize=True)
def test_a_stop_text_ends_the_answer(tokens: list[int], stop: list[str]) -> None:
    whole = _of_bytes(tokens)
    ends = [whole.index(text) for text in stop if text in whole]

    assert "".join(_pieces(tokens, stop)) == whole[: min(ends, default=len(whole))]


def test_a_character_comes_when_its_last_byte_does() -> None:
    assert _pieces("a🙂b".encode()) == ["a", "", "", "", "🙂", "b", ""]


def test_half_a_character_at_the_end_is_shown_as_such() -> None:
    assert _pieces("é€".encode()[:-1]) == ["", "é", "", "", "\ufffd"]


def test_what_may_become_a_stop_text_waits() -> None:
    assert _pieces(b"a//b//", ["//!"]) == ["a", "", "", "//b", "", "", "//"]


def test_bytes_in_a_group_are_settled_before_the_next() -> None:
    def strict(tokens: Sequence[int]) -> str:
        try:
            return bytes(tokens).decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(tokens)

    assert "".join(_pieces("🙂€a".encode(), (), strict)) == "🙂€a"


@pytest.mark.parametrize("text", ["fn f() {\n}", "Grüße, 世界 🙂"])
def test_a_tokenizer_of_the_library_streams(merged: Path, text: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(merged)
    tokens = tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False)

    assert "".join(_pieces(tokens, (), lambda ids: tokenizer.decode(ids, skip_special_tokens=True))) == text


@given(_BYTES, st.integers(0, 6))
def test_what_the_client_has_is_left_out(tokens: list[int], num: int) -> None:
    stream = TextStream(_of_bytes, (), num_left_out=num)
    pieces = [*map(stream.feed, tokens), stream.end()]

    assert "".join(pieces) == _of_bytes(tokens)[num:]
