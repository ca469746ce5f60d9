"""The text of a source file: its encoding, whether it is text at all, and whether it says that it is generated."""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from typing import Final

_WIDE: Final = ((BOM_UTF32_LE, "utf-32"), (BOM_UTF32_BE, "utf-32"), (BOM_UTF16_LE, "utf-16"), (BOM_UTF16_BE, "utf-16"))
"""Byte order mark, encoding. Longer marks come first, because they start with the shorter ones."""

_FORMATS: Final = (b"VOX ", b"version https://git-lfs.github.com/spec/")
"""Voxel models of MagicaVoxel, and pointers that Git LFS leaves in place of a file."""

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Text contains tabs, line ends, form feeds and escapes, and no other control character."""

NUM_HEAD_BYTES: Final = 4_096
"""Bytes at the start of a file that may say that it is generated."""

_MARK: Final = (
    r"(?:.*@generated\b|.*\bgenerated\b.*\bdo not (?:edit|modify)\b"
    r"|(?:this (?:file|code|program|page) (?:is|was) |code |file )?(?:auto-?|automatically )?generated (?:by|from)\b)"
)
_GENERATED_PROGRAM: Final = re.compile(rf"(?i)(?:[ \t]*+(?:(?://|#).*)?\n)*?[ \t]*+(?://|#)[/! \t]*+{_MARK}")
"""Only comments before the code count."""

_GENERATED_PAGE: Final = re.compile(rf"(?im)^[ \t]*+<!--[ \t]*+{_MARK}")


def decode_text(data: bytes, errors: str = "strict") -> str:
    """Decode a file by its byte order mark, else as UTF-8, or raise `UnicodeDecodeError`; lines end in line feeds."""
    encoding = next((name for mark, name in _WIDE if data.startswith(mark)), "utf-8")
    text = data.decode(encoding, errors).lstrip("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def is_wide(data: bytes) -> bool:
    """Return whether a file starts with a byte order mark of UTF-16 or UTF-32, which Windows editors may write."""
    return data.startswith(tuple(mark for mark, _ in _WIDE))


def is_other_format(data: bytes) -> bool:
    """Return whether a file is not text despite its name: a voxel model, sound, a compressed file."""
    head = data[:NUM_HEAD_BYTES]
    is_binary = b"\0" in data or (_CONTROL.search(head) is not None and not _is_utf8(data))
    return data.startswith(_FORMATS) or (is_binary and not is_wide(data))


def is_generated(name: str, head: str) -> bool:
    """Return whether a comment at the head of a program or page, depending on `name`, says that a tool wrote it."""
    found = _GENERATED_PAGE.search(head) if name.endswith(".md") else _GENERATED_PROGRAM.match(head)
    return found is not None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
