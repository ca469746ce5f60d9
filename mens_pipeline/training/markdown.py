"""Values of strangers in Markdown: the names and messages that end up in cards and in the Dagster UI."""

import re
from typing import Final

from mens_pipeline.language.visible_text import visible_text

_MEANT: Final = re.compile(r"[&<>\[\]`|]")
"""What begins a tag, a link, an image, code or a cell."""


def plain(text: str) -> str:
    """Escape a text so that Markdown shows it as it is, in one line: no tag, link, image or cell of its own."""
    one_line = " ".join(visible_text(text).split())
    return _MEANT.sub(lambda match: f"&#{ord(match[0])};", one_line)
