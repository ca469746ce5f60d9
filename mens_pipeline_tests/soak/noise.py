"""Corrupted bytes: whole documents with a few changes, and random bytes."""

import random
from collections.abc import Sequence
from typing import Final

_ODD: Final = (
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\xe2\x80\xae",
        b"\r",
        b"\n\n",
        b'"',
        b"\\u0000",
        b"\\ud800",
        b"{",
        b"[",
        b"}",
    ),
    *(b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-1", b"99999999999999999999", b"0.1", b'""', b"[]", b"{}"),
    *(b"../../etc/passwd", b"!!python/object:os.system", b"&a [*a]", b"---\n", b": ", b"- ", b"\t", b"<script>", b"{{"),
    *(b"[" * 3000, b'{"a":' * 3000, b"(" * 400, b"x" * 20_000, b"@test fn t() { ", b"fn ", b"type ", b"```vox\n"),
)
_MOST_CHANGES: Final = 4


def mutate(content: bytes, dice: random.Random) -> bytes:
    """Change a document at a few places."""
    changed = bytearray(content)
    for _ in range(dice.randint(1, _MOST_CHANGES)):
        at = dice.randrange(len(changed) + 1)
        length = dice.choice((1, 2, 8, 64, 400))
        match dice.randrange(6):
            case 0:
                changed[at : at + 1] = bytes((dice.randrange(256),))
            case 1:
                del changed[at : at + length]
            case 2:
                changed[at:at] = dice.choice(_ODD)
            case 3:
                changed[at : at + length] = dice.choice(_ODD)
            case 4:
                other = dice.randrange(len(changed) + 1)
                changed[at:at] = changed[other : other + length]
            case _:
                del changed[at:]
    return bytes(changed)


def noise(whole: Sequence[bytes], dice: random.Random) -> bytes:
    """Return a corrupted document, and sometimes random bytes."""
    if dice.random() < 0.05:
        return dice.randbytes(dice.randrange(300))
    return mutate(dice.choice(whole), dice)
