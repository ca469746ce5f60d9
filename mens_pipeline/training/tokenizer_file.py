"""The tokenizer of a model by its file alone, without the deep learning stack."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from mens_pipeline.training.chat import ControlToken


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

    @cached_property
    def added_tokens_decoder(self) -> Mapping[int, ControlToken]:
        """The added tokens by their ids."""
        added: Mapping[int, ControlToken] = self._tokenizer.get_added_tokens_decoder()
        return added

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The ids of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids
