"""The tokenizer of a model by its file alone, without the deep learning stack."""

from pathlib import Path
from typing import Any


class FileTokenizer:
    """What `tokenizer.json` of a folder makes of a text; safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Read the file.

        Args:
            folder: Of a model.
        """
        from tokenizers import Tokenizer  # noqa: PLC0415 - a command or a child process loads it

        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The ids of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids
