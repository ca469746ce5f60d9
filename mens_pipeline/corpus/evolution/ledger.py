"""Every reply that was ever paid for: a file that is only added to, one line at a time."""

import os
from pathlib import Path
from threading import Lock
from typing import Final

from pydantic import ValidationError

from mens_pipeline.corpus.evolution.requests import Reply
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.storage.validation import errors_in

_BEGINNING: Final = b'{"key":'
"""How every line begins that `add` writes."""

_WRITABLE: Final = "Name a file that may be written."
_FOREIGN: Final = "Name another file with --ledger; this one holds something else."


class Ledger:
    """The replies of all calls so far. May be added to from several threads."""

    def __init__(self, path: Path) -> None:
        """Read what is there; what a call that died left of a line is dropped, once all before it is known to be ours.

        The file of JSON lines is made at the first reply.

        Raises:
            RefusedError: A whole line is no reply, or what is left of one is of something else; nothing is changed.
            ConfigurationError: It cannot be read or written.
        """
        self._path = path
        self._lock = Lock()
        self._replies: dict[str, Reply] = {}
        try:
            content = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}. {_WRITABLE}") from error
        *lines, rest = content.split(b"\n")
        for number, line in enumerate(lines, start=1):
            self._read(number, line)
        if rest:
            self._drop(len(lines) + 1, rest, len(content) - len(rest))

    def _read(self, number: int, line: bytes) -> None:
        try:
            reply = Reply.model_validate_json(line)
        except ValidationError as error:
            raise RefusedError(f"{self._path}:{number}: no reply ({errors_in(error)}). {_FOREIGN}") from error
        self._replies[reply.key] = reply

    def _drop(self, number: int, rest: bytes, num_whole: int) -> None:
        """Take away a line that was not written to its end, if it was to be a reply."""
        if rest[: len(_BEGINNING)] != _BEGINNING[: len(rest)]:
            found = "what is left of a line is no part of a reply"
            raise RefusedError(f"{self._path}:{number}: {found}. {_FOREIGN}")
        try:
            os.truncate(self._path, num_whole)
        except OSError as error:
            raise ConfigurationError(f"{self._path}: {error.strerror}. {_WRITABLE}") from error

    def find(self, key: str) -> Reply | None:
        """Return the stored reply to a prompt; None if it was never answered."""
        return self._replies.get(key)

    def add(self, reply: Reply) -> None:
        """Keep a reply; it is on disk when the call returns.

        Raises:
            ConfigurationError: The file cannot be written.
        """
        with self._lock:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8", newline="\n") as target:
                    target.write(reply.model_dump_json() + "\n")
                    target.flush()
                    os.fsync(target.fileno())
            except OSError as error:
                raise ConfigurationError(f"{self._path}: {error.strerror}. {_WRITABLE}") from error
            self._replies[reply.key] = reply
