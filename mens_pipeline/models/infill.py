"""The one place where a cursor in a program becomes the tokens that a model sees: training, evaluation, serving.

A model is shown a window of what stands before and behind the cursor, between marks that its tokenizer has for this
purpose; where it has none, between special tokens that its chat format does not use, or between words.
"""

import hashlib
from collections.abc import Sequence
from itertools import accumulate, groupby, takewhile
from string import ascii_letters, digits
from typing import Final, Literal, NamedTuple

from mens_pipeline.models.chat import Encoded, Tokenizer, control_tokens, escape, format_for

Order = Literal["suffix_first", "prefix_first"]
"""Which side of the cursor is shown first. With the suffix first, what is typed extends what was read already; with the
prefix first, the suffix is read again."""

SUFFIX_FIRST: Final[Order] = "suffix_first"
PREFIX_FIRST: Final[Order] = "prefix_first"


class Marks(NamedTuple):
    """Texts that stand before the prefix, the suffix and the middle; each is one token where a base has any."""

    prefix: str
    suffix: str
    middle: str


_CODESTRAL: Final = Marks("[PREFIX]", "[SUFFIX]", "[MIDDLE]")

_NATIVE: Final = (
    Marks("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    Marks("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    Marks("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    Marks("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"),
    Marks("▁<PRE>", "▁<SUF>", "▁<MID>"),
    _CODESTRAL,
)
"""Of Qwen2.5-Coder and Qwen3, of StarCoder and CodeGemma, of Granite, DeepSeek, Code Llama and Codestral."""
_IDLE: Final = Marks("<issue_start>", "<issue_closed>", "<issue_comment>")
"""Special tokens of SmolLM2 that neither its chat format nor programs use."""
_WORDS: Final = Marks("<prefix>", "<suffix>", "<middle>")

_OF_WORD: Final = ascii_letters + digits + "_"
_LONGEST_WORD: Final = 64
"""Characters of a word that is written from its beginning, with the blank before it."""
_TOKEN_CHARACTERS: Final = 16
"""Characters of a token at most, in a text that is worth reading."""
_SUFFIX_SHARE: Final = 0.25
"""Of a window, for what stands behind the cursor."""
_SUFFIX_FIRST_SHARE: Final = 0.7
"""Share of training rows with the suffix first, for a base that is asked so; the others keep it able to read both."""


def find_marks(tokenizer: Tokenizer) -> Marks:
    """Return the marks of a tokenizer: its own, else idle special tokens, else words."""
    known = {token.content for token in tokenizer.added_tokens_decoder.values()}
    return next((marks for marks in (*_NATIVE, _IDLE) if known.issuperset(marks)), _WORDS)


def choose_order(tokenizer: Tokenizer) -> Order:
    """Return the order in which a base is shown a cursor: that of its pretraining, where it has marks of its own.

    That is prefix first, except for Codestral. A base without marks learns either, and gets the suffix first. An
    adapter is asked in the order of its training, which its manifest records (`infill_order`).
    """
    marks = find_marks(tokenizer)
    return PREFIX_FIRST if marks in _NATIVE and marks != _CODESTRAL else SUFFIX_FIRST


def split_at_marks(text: str) -> tuple[str, str] | None:
    """Return what stands before and behind the cursor of a prompt that a client has put between marks itself.

    The marks are those of any base that has some, in the order of prefix, suffix, middle; None where there are none.
    """
    for before, behind, middle in _NATIVE:
        if text.startswith(before) and text.endswith(middle) and behind in text:
            prefix, _, suffix = text[len(before) : -len(middle)].partition(behind)
            return prefix, suffix
    return None


def split_word(prefix: str) -> tuple[str, str]:
    """Split off the word in which a prefix ends, with the blank before it; it is empty where there is none.

    A model sees no half words: their tokens are others than those of whole ones. It is shown what stands before, and
    writes the word from its beginning.
    """
    near = prefix[-_LONGEST_WORD:]
    start = len(near.rstrip(_OF_WORD))
    if start == len(near):
        return prefix, ""
    word = near[start - (near[start - 1 : start] == " ") :]
    return prefix.removesuffix(word), word


def order_of_row(order: Order, prefix: str, middle: str) -> Order:
    """Return the order in which a training row is shown to a model that is asked in `order`, the same one every time.

    All rows have the prefix first where it is asked so; else seven of ten have the suffix first.
    """
    digest = hashlib.sha256(f"{prefix}\0{middle}".encode("utf-8", "surrogatepass")).digest()
    is_turned = int.from_bytes(digest[:8], "big") >= _SUFFIX_FIRST_SHARE * 2**64
    return PREFIX_FIRST if is_turned else order


def encode_infill_prompt(tokenizer: Tokenizer, prefix: str, suffix: str, window: int, order: Order) -> tuple[int, ...]:
    """Encode a cursor: the ids up to where the piece between prefix and suffix begins, or the word that it ends.

    Args:
        tokenizer: Of the base.
        prefix: What stands before the cursor.
        suffix: What stands behind it.
        window: Tokens of both that are shown at most; they are cut at line ends.
        order: Which side is shown first.
    """
    marks, chat, control = find_marks(tokenizer), format_for(tokenizer), control_tokens(tokenizer)
    behind = _cut(tokenizer, escape(suffix, control), int(window * _SUFFIX_SHARE), is_suffix=True)
    before = _cut(tokenizer, escape(split_word(prefix)[0], control), window - len(behind), is_suffix=False)
    shown = [(marks.suffix, behind), (marks.prefix, before)]
    if order == PREFIX_FIRST:
        shown.reverse()
    ids = _encode(tokenizer, chat.bos)
    for mark, side in shown:
        ids += [*_encode(tokenizer, mark), *side]
    return (*ids, *_encode(tokenizer, marks.middle))


def encode_infill(  # noqa: PLR0913, PLR0917 - the parts of a row
    tokenizer: Tokenizer, prefix: str, suffix: str, middle: str, window: int, order: Order
) -> Encoded:
    """Encode a cursor and the piece that stands there, with the word before it, and the end of the turn."""
    text = escape(split_word(prefix)[1] + middle, control_tokens(tokenizer)) + format_for(tokenizer).end
    return Encoded(encode_infill_prompt(tokenizer, prefix, suffix, window, order), tuple(_encode(tokenizer, text)))


def encode_prefix(tokenizer: Tokenizer, prefix: str, window: int) -> tuple[int, ...]:
    """Encode what stands before a cursor, but for the word there, for a model that goes on from there."""
    text = escape(split_word(prefix)[0], control_tokens(tokenizer))
    return (*_encode(tokenizer, format_for(tokenizer).bos), *_cut(tokenizer, text, window, is_suffix=False))


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False) if text else []


def _cut(tokenizer: Tokenizer, text: str, room: int, *, is_suffix: bool) -> Sequence[int]:
    """Return the tokens next to the cursor, whole lines as far as there is room; of a longer line a part.

    A prefix begins with a line that crosses a multiple of `room` characters, about a third of what fits: it moves every
    few lines that are typed, instead of with each, and what was read of it before is not read again.
    """
    start = 0 if is_suffix else max(0, len(text) - room * _TOKEN_CHARACTERS)
    shown = text[: room * _TOKEN_CHARACTERS] if is_suffix else text[start:]
    ids = _encode(tokenizer, shown)
    if len(ids) <= room:
        return ids
    lines = shown.splitlines(keepends=True)
    parts = lines if is_suffix else _lines_of_steps(lines, start, room)[::-1]
    lengths = accumulate(len(_encode(tokenizer, part)) for part in parts)
    near = parts[: max(1, sum(1 for _ in takewhile(lambda length: length <= room, lengths)))]
    ids = _encode(tokenizer, "".join(near if is_suffix else near[::-1]))
    # A line that is too long by itself, or lines that are a few tokens more together than one by one.
    return ids[:room] if is_suffix else ids[max(0, len(ids) - room) :]


def _lines_of_steps(lines: Sequence[str], start: int, step: int) -> list[str]:
    """Join lines that begin within the same step of characters; the first begins at `start`."""
    starts = accumulate(map(len, lines), initial=start)
    steps = groupby(zip(starts, lines, strict=False), key=lambda placed: placed[0] // step)
    return ["".join(line for _, line in step_lines) for _, step_lines in steps]
