"""Small files beside the artifacts of a kind that change: pointers, and lines that are only added to.

They lie in the folder of the store, or in its object storage; several processes and machines may change them at once.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.storage.draft import locked

if TYPE_CHECKING:
    from mens_pipeline.storage.remote import Remote

LOCK: Final = ".publishing"
"""In the folder of a store: held while something in it takes the place of something else."""

_TRIES: Final = 50


def unwritable(error: OSError, root: Path) -> ConfigurationError:
    """Build the error for a store that cannot be written."""
    advice = "Set MENS_STORE_ROOT to a folder that you may write and that has room."
    return ConfigurationError(f"{error.filename2 or error.filename or root}: {error.strerror}. {advice}")


class Documents:
    """The documents of a store."""

    def __init__(self, root: Path, remote: "Remote | None" = None) -> None:
        """Use a folder, or the object storage that stands behind it; then nothing in the folder counts."""
        self._root = root
        self._remote = remote

    def place(self, kind: str, name: str) -> str:
        """Name a document in messages."""
        return str(self._root / kind / name) if self._remote is None else f"{self._remote.url}/{kind}/{name}"

    def read(self, kind: str, name: str) -> bytes:
        """Read a document; one that is not there is empty.

        Raises:
            ConfigurationError: The object storage does not answer.
        """
        if self._remote is not None:
            return self._remote.read(f"{kind}/{name}").content
        path = self._root / kind / name
        return path.read_bytes() if path.is_file() else b""

    def amend(self, kind: str, name: str, change: Callable[[bytes], bytes]) -> None:
        """Change a document, whoever else changes it at the same time.

        The change is called again when another one came first.

        Raises:
            ConfigurationError: The store cannot be written.
        """
        path = self._root / kind / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self._root / LOCK):
                if self._remote is None:
                    _write(path, change(self.read(kind, name)))
                else:
                    _swap(self._remote, f"{kind}/{name}", change)
        except OSError as error:
            raise unwritable(error, self._root) from error

    def replace(self, kind: str, name: str, seen: bytes, content: bytes) -> None:
        """Change a document that still is what was seen.

        Raises:
            RefusedError: It was changed since.
            ConfigurationError: The store cannot be written.
        """

        def change(found: bytes) -> bytes:
            if found != seen:
                place = self.place(kind, name)
                raise RefusedError(f"{place}: changed meanwhile, perhaps on another machine. Run the same again.")
            return content

        self.amend(kind, name, change)


def _swap(remote: "Remote", name: str, change: Callable[[bytes], bytes]) -> None:
    """Change an object by compare-and-swap."""
    written = None
    for _ in range(_TRIES):
        found = remote.read(name)
        # A request that was repeated may have been answered by its own first try.
        if found.content == written:
            return
        written = change(found.content)
        if written == found.content or remote.swap(name, written, found.version):
            return
    raise ConfigurationError(f"{remote.url}/{name}: changed by others {_TRIES} times in a row. Run the same again.")


def _write(path: Path, content: bytes) -> None:
    """Put a file in the place of another one; after a power cut it is one of the two."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as target:
            target.write(content)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
