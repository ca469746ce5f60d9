"""The tokenizer of a model by its file alone, without the deep learning stack."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.files import read_regular
from mens_pipeline.training.chat import ControlToken

_TEMPLATE: Final = "chat_template.jinja"
_OPTIONS: Final = "tokenizer_config.json"
_LONGEST: Final = 10_000_000
"""Bytes of a template, or of what a tokenizer says besides."""

_LARGEST: Final = 100_000_000
"""Bytes; the largest vocabularies take a third of it."""


def read_tokenizer(path: Path) -> Any:
    """Read the tokenizer of a file that anybody may have written.

    Raises:
        RefusedError: It cannot be read, or is no file of a tokenizer.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - a command or a child process loads it

    try:
        return Tokenizer.from_buffer(read_regular(path, _LARGEST))
    except (OSError, ValueError) as error:
        found = error.strerror if isinstance(error, OSError) else f"no tokenizer ({error})"
        raise RefusedError(f"{path}: {found}. Fetch or write the model again.") from error


def template_in(folder: Path) -> str | None:
    """Return the chat template beside a model, wherever transformers looks for it; None without one.

    Raises:
        RefusedError: A file cannot be read.
    """
    path = folder / _TEMPLATE
    if path.is_file():
        return _text_of(path)
    path = folder / _OPTIONS
    if not path.is_file():
        return None
    try:
        document = json.loads(_text_of(path))
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{path}: no JSON ({error}). Write the model again.") from error
    if not isinstance(document, dict):
        raise RefusedError(f"{path}: a {type(document).__name__}, no object. Write the model again.")
    template = document.get("chat_template")
    return template if isinstance(template, str) else None


def _text_of(path: Path) -> str:
    """Read the text of a file that anybody may have written."""
    try:
        return read_regular(path, _LONGEST).decode("utf-8")
    except (OSError, ValueError) as error:
        raise RefusedError(f"{path}: cannot be read ({error}). Write the model again.") from error


class FileTokenizer:
    """Tokens of a text by the `tokenizer.json` of a folder; safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Read the file.

        Raises:
            RefusedError: It is no file of a tokenizer.
        """
        self._tokenizer: Any = read_tokenizer(folder / "tokenizer.json")
        self.chat_template = template_in(folder)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @cached_property
    def added_tokens_decoder(self) -> Mapping[int, ControlToken]:
        """The added tokens by their ids."""
        added: Mapping[int, ControlToken] = self._tokenizer.get_added_tokens_decoder()
        return added

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids
