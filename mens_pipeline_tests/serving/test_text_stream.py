"""Text in pieces: no half characters, nothing after a stop text, and nothing lost."""

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


def _decode_bytes(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def _stream(tokens: Sequence[int], stop: Sequence[str] = (), decode: Any = _decode_bytes) -> list[str]:
    stream = TextStream(decode, stop)
    pieces = []
    for token in tokens:
        pieces.append(stream.feed(token))
        if stream.is_stopped:
            return pieces
    return [*pieces, stream.end()]


@given(_BYTES | _LEAST_BYTES)
@settings(max_examples=500, deadline=None, derandomize=True)
def test_pieces_add_up_to_the_whole_text(tokens: list[int]) -> None:
    assert "".join(_stream(tokens)) == _decode_bytes(tokens)


@given(_BYTES, _STOPS)
@settings(max_examples=500, deadline=None, derandomize=True)
def test_a_stop_text_ends_the_completion(tokens: list[int], stop: list[str]) -> None:
    whole = _decode_bytes(tokens)
    ends = [whole.index(text) for text in stop if text in whole]

    assert "".join(_stream(tokens, stop)) == whole[: min(ends, default=len(whole))]


def test_a_character_comes_with_its_last_byte() -> None:
    assert _stream("a🙂b".encode()) == ["a", "", "", "", "🙂", "b", ""]


def test_half_a_character_at_the_end_is_replaced() -> None:
    assert _stream("é€".encode()[:-1]) == ["", "é", "", "", "\ufffd"]


def test_text_that_may_become_a_stop_text_is_held_back() -> None:
    assert _stream(b"a//b//", ["//!"]) == ["a", "", "", "//b", "", "", "//"]


def test_bytes_in_a_group_are_settled_before_the_next() -> None:
    def decode_strictly(tokens: Sequence[int]) -> str:
        try:
            return bytes(tokens).decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(tokens)

    assert "".join(_stream("🙂€a".encode(), (), decode_strictly)) == "🙂€a"


@pytest.mark.parametrize("text", ["fn f() {\n}", "Grüße, 世界 🙂"])
def test_a_tokenizer_of_the_library_streams(merged: Path, text: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(merged)
    tokens = tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False)

    assert "".join(_stream(tokens, (), lambda ids: tokenizer.decode(ids, skip_special_tokens=True))) == text


@given(_BYTES, st.integers(0, 6))
def test_leaves_out_text_that_the_client_has(tokens: list[int], num: int) -> None:
    stream = TextStream(_decode_bytes, (), num_left_out=num)
    pieces = [*map(stream.feed, tokens), stream.end()]

    assert "".join(pieces) == _decode_bytes(tokens)[num:]
