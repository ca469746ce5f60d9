"""Infill prompts: encode a cursor in a program, the same way for training, evaluation and serving.

A prompt holds a window of the text before and after the cursor, delimited by the infill marks of the tokenizer. A
tokenizer without such marks uses special tokens that its chat format does not use, or else words.
"""

import hashlib
import re
from collections.abc import Sequence
from itertools import accumulate, groupby, takewhile
from string import ascii_letters, digits
from typing import Final, Literal, NamedTuple

from mens_pipeline.models.chat import Encoded, Tokenizer, control_tokens, cut, encode_cut, format_for

Order = Literal["suffix_first", "prefix_first"]
"""The side of the cursor that comes first in a prompt. With the suffix first, typing only appends to the prompt, so the
server reuses its cache; with the prefix first, the suffix follows the typed text, and only a CPU keeps its cache."""

SUFFIX_FIRST: Final[Order] = "suffix_first"
PREFIX_FIRST: Final[Order] = "prefix_first"


class Marks(NamedTuple):
    """Texts before the prefix, the suffix and the middle; each is one token if the base has infill marks."""

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
"""Marks of Qwen2.5-Coder and Qwen3, StarCoder and CodeGemma, Granite, DeepSeek, Code Llama and Codestral."""
_CODE_LLAMA: Final = Marks("<PRE>", "<SUF>", "<MID>")
_MARKED: Final = (*_NATIVE, _CODE_LLAMA, Marks("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"))
"""Marks that clients may write, including Code Llama's as text and GLM's. Mellum uses StarCoder's, suffix first."""
_LIKE_A_MARK: Final = re.compile(
    r"<\|?(?:fim|code|editable_region|user_cursor)[-_a-z]*\|?>|<(?:PRE|SUF|MID|FILL|CURSOR)>"
    r"|\[(?:PREFIX|SUFFIX|MIDDLE)\]|<\uff5cfim[^>\n]{1,20}>|<\|(?:prefix|suffix|middle|cursor)\|>"
)
_MOST_NAMED: Final = 4
_IDLE: Final = Marks("<issue_start>", "<issue_closed>", "<issue_comment>")
"""Special tokens of SmolLM2 that neither its chat format nor programs use."""
_WORDS: Final = Marks("<prefix>", "<suffix>", "<middle>")

_OF_WORD: Final = ascii_letters + digits + "_"
_LONGEST_WORD: Final = 64
"""Most characters of the word at the cursor that the model rewrites, with the space before it."""
_TOKEN_CHARACTERS: Final = 16
"""Upper bound for characters per token in a useful text."""
_SUFFIX_SHARE: Final = 0.25
"""Share of a window for the text after the cursor."""
_SUFFIX_FIRST_SHARE: Final = 0.7
"""Share of training rows with the suffix first, for a base with that order; the rest teach it the other order."""


def find_marks(tokenizer: Tokenizer) -> Marks:
    """Find the marks of a tokenizer: its own, or else idle special tokens, or else words."""
    known = {token.content for token in tokenizer.added_tokens_decoder.values()}
    return next((marks for marks in (*_NATIVE, _IDLE) if known.issuperset(marks)), _WORDS)


def choose_order(tokenizer: Tokenizer) -> Order:
    """Choose the order of a base's pretraining: prefix first, except for Codestral.

    A base without infill marks learns either order and gets the suffix first. An adapter keeps the order of its
    training (`infill_order` in its manifest).
    """
    marks = find_marks(tokenizer)
    return PREFIX_FIRST if marks in _NATIVE and marks != _CODESTRAL else SUFFIX_FIRST


def split_at_marks(text: str) -> tuple[str, str] | None:
    """Split a prompt at the marks that a client put in it; return prefix and suffix, or None without marks.

    Accepts the marks of all common families, in either order; the middle mark may be missing. Text before the first
    mark belongs to other files and is dropped; text after the middle mark belongs to the prefix.

    Raises:
        ValueError: The marks are unknown or incomplete; the message names them.
    """
    for marks in _MARKED:
        at_prefix, at_suffix, at_middle = (text.find(mark) for mark in marks)
        if at_prefix < 0 or at_suffix < 0 or 0 <= at_middle < max(at_prefix, at_suffix):
            continue
        middle = text[at_middle + len(marks.middle) :] if at_middle >= 0 else ""
        end = at_middle if at_middle >= 0 else len(text)
        if at_prefix < at_suffix:
            prefix, suffix = text[at_prefix + len(marks.prefix) : at_suffix], text[at_suffix + len(marks.suffix) : end]
        else:
            prefix, suffix = text[at_prefix + len(marks.prefix) : end], text[at_suffix + len(marks.suffix) : at_prefix]
        if marks == _CODE_LLAMA:
            prefix, suffix = prefix.removeprefix(" ").removesuffix(" "), suffix.removesuffix(" ")
        return prefix + middle, suffix
    if unknown := dict.fromkeys(mark[:_LONGEST_WORD] for mark in _LIKE_A_MARK.findall(text)):
        raise ValueError(f"{', '.join(list(unknown)[:_MOST_NAMED])}: not supported as marks of a cursor")
    return None


def has_marks(text: str) -> bool:
    """Check whether a text contains marks of a cursor, known or unknown."""
    return any(mark in text for marks in _MARKED for mark in marks) or _LIKE_A_MARK.search(text) is not None


def split_word(prefix: str) -> tuple[str, str]:
    """Split off the word at the end of a prefix, with the space before it; the word may be empty.

    Half a word has different tokens from the whole word, so a model sees the text before it and rewrites the word.
    """
    near = prefix[-_LONGEST_WORD:]
    start = len(near.rstrip(_OF_WORD))
    if start == len(near):
        return prefix, ""
    word = near[start - (near[start - 1 : start] == " ") :]
    return prefix.removesuffix(word), word


def order_of_row(order: Order, prefix: str, middle: str) -> Order:
    """Return the order of a training row: for suffix first, a share of the rows, chosen by hash, gets prefix first."""
    digest = hashlib.sha256(f"{prefix}\0{middle}".encode("utf-8", "surrogatepass")).digest()
    is_turned = int.from_bytes(digest[:8], "big") >= _SUFFIX_FIRST_SHARE * 2**64
    return PREFIX_FIRST if is_turned else order


def encode_infill_prompt(tokenizer: Tokenizer, prefix: str, suffix: str, window: int, order: Order) -> tuple[int, ...]:
    """Encode an infill prompt; both sides together have at most `window` tokens and are cut at line ends."""
    marks, chat, control = find_marks(tokenizer), format_for(tokenizer), control_tokens(tokenizer)
    behind = _fit(tokenizer, cut(suffix, control), int(window * _SUFFIX_SHARE), is_suffix=True)
    before = _fit(tokenizer, cut(split_word(prefix)[0], control), window - len(behind), is_suffix=False)
    shown = [(marks.suffix, behind), (marks.prefix, before)]
    if order == PREFIX_FIRST:
        shown.reverse()
    ids = encode_cut(tokenizer, chat.bos)
    for mark, side in shown:
        ids += [*encode_cut(tokenizer, mark), *side]
    return (*ids, *encode_cut(tokenizer, marks.middle))


def count_after(tokenizer: Tokenizer, prompt: Sequence[int]) -> int:
    """Count the tokens between the suffix mark and the last token of an infill prompt.

    Returns 0 if the prefix comes there, or if a mark has several tokens.
    """
    (prefix, *more), (suffix, *others), _ = (encode_cut(tokenizer, mark) for mark in find_marks(tokenizer))
    after = prompt[len(prompt) - prompt[::-1].index(suffix) : -1]
    return 0 if more or others or prefix in after else len(after)


def encode_infill(  # noqa: PLR0913, PLR0917 - the parts of a row
    tokenizer: Tokenizer, prefix: str, suffix: str, middle: str, window: int, order: Order
) -> Encoded:
    """Encode an infill row; its completion is the word at the cursor, `middle` and the end of the turn."""
    text = cut(split_word(prefix)[1] + middle, control_tokens(tokenizer)) + format_for(tokenizer).end
    return Encoded(encode_infill_prompt(tokenizer, prefix, suffix, window, order), tuple(encode_cut(tokenizer, text)))


def encode_prefix(tokenizer: Tokenizer, prefix: str, window: int) -> tuple[int, ...]:
    """Encode the text before a cursor, without its last word, for a model to continue."""
    text = cut(split_word(prefix)[0], control_tokens(tokenizer))
    return (*encode_cut(tokenizer, format_for(tokenizer).bos), *_fit(tokenizer, text, window, is_suffix=False))


def _fit(tokenizer: Tokenizer, text: str, room: int, *, is_suffix: bool) -> Sequence[int]:
    """Return at most `room` tokens next to the cursor, whole lines if possible.

    A prefix starts at a line that crosses a multiple of `room` characters, about a third of the text that fits. So its
    start moves only every few lines of typing, and the server can reuse its cache.
    """
    start = 0 if is_suffix else max(0, len(text) - room * _TOKEN_CHARACTERS)
    shown = text[: room * _TOKEN_CHARACTERS] if is_suffix else text[start:]
    ids = encode_cut(tokenizer, shown)
    if len(ids) <= room:
        return ids
    lines = shown.splitlines(keepends=True)
    parts = lines if is_suffix else _lines_of_steps(lines, start, room)[::-1]
    lengths = accumulate(len(encode_cut(tokenizer, part)) for part in parts)
    near = parts[: max(1, sum(1 for _ in takewhile(lambda length: length <= room, lengths)))]
    ids = encode_cut(tokenizer, "".join(near if is_suffix else near[::-1]))
    # A single line may be too long, and joined lines may have more tokens than they have separately.
    return ids[:room] if is_suffix else ids[max(0, len(ids) - room) :]


def _lines_of_steps(lines: Sequence[str], start: int, step: int) -> list[str]:
    """Join lines that begin within the same step of characters; the first begins at `start`."""
    starts = accumulate(map(len, lines), initial=start)
    steps = groupby(zip(starts, lines, strict=False), key=lambda placed: placed[0] // step)
    return ["".join(line for _, line in step_lines) for _, step_lines in steps]
