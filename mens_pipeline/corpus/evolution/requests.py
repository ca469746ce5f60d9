"""Requests to a model, its replies, and a ledger that keeps every reply, so that none is paid for twice."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

from pydantic import Field, ValidationError

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.storage.validation import Strict, errors_in


@dataclass(frozen=True, slots=True)
class Request:
    """One thing asked of a generator.

    `key`, by which a ledger knows it, is the SHA-256 over all that decides the reply, hexadecimal; `system` is what the
    model is told first.
    """

    key: str
    system: str
    prompt: str

    @property
    def num_bytes(self) -> int:
        """Bytes of both texts, which they have no more tokens than."""
        return len(self.system.encode()) + len(self.prompt.encode())


class Reply(Strict):
    """Reply of a generator, as a ledger keeps it."""

    key: str = Field(description="Of the request.")
    text: str
    stopped: bool = Field(description="The model ended by itself, rather than running into the limit.")
    num_tokens: int = Field(ge=0, description="Of request and reply, as the generator counts them.")
    num_written: int | None = Field(
        default=None,
        ge=0,
        exclude_if=lambda number: number is None,
        description="Of the reply alone; null where the generator does not count it.",
    )


class Generator(Protocol):
    """A model that replies to requests."""

    @property
    def name(self) -> str:
        """Name of the model."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of its weights; of an endpoint, its address."""
        ...

    @property
    def decoding(self) -> Mapping[str, Any]:
        """Decoding options in JSON types: part of the key of a request."""
        ...

    @property
    def max_new_tokens(self) -> int:
        """Tokens of a reply at most."""
        ...

    def complete(
        self, requests: Sequence[Request], record: Callable[[Reply], None], time_left: Callable[[], float]
    ) -> None:
        """Reply to requests, as many as there is time for, in any order.

        Args:
            requests: What is asked, no two with the same key.
            record: Takes each reply as soon as it is there, from any thread; what it took is not lost, whatever
                ends the call.
            time_left: Seconds until no request may begin; 0 or less when they are over.

        Raises:
            RefusedError: The generator does not work.
        """
        ...


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
        """Return the stored reply to a prompt; None if there never was one."""
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
