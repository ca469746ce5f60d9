"""VoxTokenizer, the tokenizer of the scratch model: 133 ids for ASCII text.

It has three control ids, the 95 printable characters of ASCII, and 35 compounds, pieces of Vox. It takes the longest
compound that matches, else one character. Line end and tab are compounds, so ASCII text without other control
characters round-trips; any other character gives one `UNK`, which `decode` shows as U+FFFD.

`docs/upstream.md` lists the compounds.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from mens_pipeline.models.chat import TEMPLATE

PAD: Final = 0
UNK: Final = 1
EOS: Final = 2
CONTROLS: Final = ("[PAD]", "[UNK]", "[EOS]")
"""Names of the ids 0 to 2; in a text they are plain characters."""

CHARACTERS: Final = "".join(map(chr, range(32, 127)))
"""Ids 3 to 97: the printable characters of ASCII in their order."""

COMPOUNDS: Final = (
    "workflow", "actor", "fn", "component",
    "<|im_start|>", "<|im_end|>",
    "\n", "\t", "    ", "\n    ", "\n}\n",
    "in", ": ", "return ", ", ", "str", "on", ") to ", " {", "or", "and ", "type", "@endpoint", " with ", "assert",
    "true", " is ", " = ", "let ", ": int", " => ", " + ", "table", "Result", "is",
)  # fmt: skip
"""Ids 98 to 132: four named words, the two markers of ChatML, layout, and then words and signs of Vox, some with their
blanks, ordered by how much they shorten the golden programs."""

VOCABULARY: Final[tuple[str, ...]] = (*CONTROLS, *CHARACTERS, *COMPOUNDS)
"""Tokens by id."""

_FIRST_COMPOUND: Final = len(CONTROLS) + len(CHARACTERS)
_STAND_IN: Final = 0x80
"""First of the single characters, outside ASCII, that stand in for compounds while encoding."""

_LONGEST_FIRST: Final = "|".join(map(re.escape, sorted(COMPOUNDS, key=len, reverse=True)))
_COMPOUND: Final = re.compile(_LONGEST_FIRST)
_STAND_INS: Final = {compound: chr(_STAND_IN + number) for number, compound in enumerate(COMPOUNDS)}
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_TEXTS: Final = ("", "\N{REPLACEMENT CHARACTER}", "", *CHARACTERS, *COMPOUNDS)


def _id_of_byte(byte: int) -> int:
    if 0 <= byte - _STAND_IN < len(COMPOUNDS):
        return _FIRST_COMPOUND + byte - _STAND_IN
    return byte - ord(" ") + len(CONTROLS) if chr(byte) in CHARACTERS else UNK


_IDS: Final = bytes(map(_id_of_byte, range(256)))


def encode(text: str) -> bytes:
    """Encode a text as ids, one byte each; greedy, the longest compound first.

    Ids are 1 to 132, never `PAD` or `EOS`; `UNK` for anything but printable ASCII, line ends and tabs.
    """
    if not text.isascii():
        text = _NOT_ASCII.sub("\0", text)
    return _COMPOUND.sub(lambda found: _STAND_INS[found[0]], text).encode("latin-1").translate(_IDS)


def decode(ids: Iterable[int]) -> str:
    """Decode ids to text; `PAD` and `EOS` decode to nothing, `UNK` to U+FFFD.

    `IndexError` for an id outside the table, including negative ids.
    """
    ids = tuple(ids)
    if ids and min(ids) < 0:
        raise IndexError(min(ids))
    return "".join(map(_TEXTS.__getitem__, ids))


def transformers_tokenizer() -> Any:
    """Build the same tokenizer for transformers, which saves it as a `tokenizer.json` that needs no code of ours.

    A text never becomes a control id: `[EOS]` in a program is five characters.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415 - loads the stack
    from transformers import PreTrainedTokenizerFast

    ids = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=CONTROLS[UNK]))
    # For a dot that also matches a line end, Python has the flag DOTALL, and this library has `m`.
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(f"{_LONGEST_FIRST}|(?m:.)"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=CONTROLS[PAD],
        unk_token=CONTROLS[UNK],
        eos_token=CONTROLS[EOS],
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        padding_side="right",
        model_input_names=["input_ids", "attention_mask"],
        chat_template=TEMPLATE,
    )
