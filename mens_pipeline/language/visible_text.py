"""Texts of strangers as a person may look at them: nothing that steers a terminal or turns the direction of reading."""

import re
from typing import Final

_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
"""Characters that do not show, turn the direction of what follows, or cannot be written as UTF-8."""


def visible_text(text: str) -> str:
    """Replace every character that would not show with a mark such as `⟨1B⟩`; line ends and tabs stay."""
    return _UNSEEN.sub(lambda match: f"\u27e8{ord(match[0]):02X}\u27e9", text.replace("\r\n", "\n"))
