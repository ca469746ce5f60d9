"""Tokenizers and chat templates that are read from the files of a model, without loading the deep learning stack."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.models.base import read_object
from mens_pipeline.storage.files import read_regular

if TYPE_CHECKING:
    from tokenizers import AddedToken

_TEMPLATE_FILE: Final = "chat_template.jinja"
_OPTIONS: Final = "tokenizer_config.json"
_LONGEST_TEMPLATE: Final = 10_000_000
"""Bytes of a template, or of what a tokenizer says besides."""

_LARGEST_TOKENIZER: Final = 100_000_000
"""Bytes; the largest vocabularies take a third of it."""


def read_tokenizer(path: Path) -> Any:
    """Read a tokenizer; refuse (`RefusedError`) what is no file of one."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - a command or a child process loads it

    try:
        return Tokenizer.from_buffer(read_regular(path, _LARGEST_TOKENIZER))
    except (OSError, ValueError) as error:
        found = error.strerror if isinstance(error, OSError) else f"no tokenizer ({error})"
        raise RefusedError(f"{path}: {found}. Fetch or write the model again.") from error


def template_in(folder: Path) -> str | None:
    """Return the chat template beside a model, wherever transformers looks for it; None without one."""
    path, options = folder / _TEMPLATE_FILE, folder / _OPTIONS
    if path.is_file():
        try:
            return read_regular(path, _LONGEST_TEMPLATE).decode("utf-8")
        except (OSError, ValueError) as error:
            raise RefusedError(f"{path}: cannot be read ({error}). Write the model again.") from error
    values = read_object(options, _LONGEST_TEMPLATE, "Write the model again.") if options.is_file() else {}
    template = values.get("chat_template")
    return template if isinstance(template, str) else None


class FileTokenizer:
    """Tokens of a text by the `tokenizer.json` of a folder; safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Read the file; refuse (`RefusedError`) what is none of a tokenizer."""
        self._tokenizer: Any = read_tokenizer(folder / "tokenizer.json")
        self.chat_template = template_in(folder)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    @cached_property
    def added_tokens_decoder(self) -> Mapping[int, "AddedToken"]:
        """The added tokens by their ids."""
        added: Mapping[int, AddedToken] = self._tokenizer.get_added_tokens_decoder()
        return added

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids
