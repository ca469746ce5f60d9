"""A content-addressed store: `<root>/<kind>/<sha256>/...` with a manifest that is written last.

A folder without a manifest, or with that of another one, is as good as absent. Pointers such as `latest` are files
beside the folders, replaced atomically.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.full_disk import is_full
from mens_pipeline.errors import ConfigurationError

MANIFEST: Final = "manifest.json"
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_YOUNG_SECONDS: Final = 60.0
"""Age from which on a draft that nobody holds is one of a process that was killed."""

_CACHE_TAG: Final = "CACHEDIR.TAG"
_TAG_TEXT: Final = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# Outputs of mens-pipeline; not a source of anything.\n"
)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A complete folder of the store.

    Attributes:
        kind: What it is: `extracted_corpus`.
        key: SHA-256 over the inputs it was made from, hexadecimal.
        path: The folder.
        manifest: Inputs, outputs with their digests, and what its maker added.
    """

    kind: str
    key: str
    path: Path
    manifest: dict[str, Any]

    def changed(self) -> tuple[str, ...]:
        """The outputs that are not as they were written."""
        return tuple(name for name, output in self.manifest["outputs"].items() if not self._is_as_written(name, output))

    def _is_as_written(self, name: str, output: dict[str, Any]) -> bool:
        path = self.path / name
        return path.is_file() and digest_of(path) == output["sha256"]


class ArtifactStore:
    """The store below one folder."""

    def __init__(self, root: Path) -> None:
        """Use a folder; it is made on first writing.

        Args:
            root: The folder.
        """
        self.root = root

    def find(self, kind: str, inputs: Mapping[str, Any]) -> Artifact | None:
        """The artifact that was made from these inputs, if it is complete.

        Args:
            kind: What it is.
            inputs: JSON values that decide what it holds.
        """
        return self.get(kind, key_of(inputs))

    def get(self, kind: str, key: str) -> Artifact | None:
        """The artifact with this key, if it is complete.

        Args:
            kind: What it is.
            key: SHA-256 over its inputs, hexadecimal; anything else, such as a path out of the store, names none.
        """
        if _KEY.fullmatch(key) is None:
            return None
        path = self.root / kind / key
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            is_its_own = manifest["kind"] == kind and key_of(manifest["inputs"]) == key
            is_its_own &= all(isinstance(output["sha256"], str) for output in manifest["outputs"].values())
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None
        return Artifact(kind, key, path, manifest) if is_its_own else None

    @contextmanager
    def writing(self, kind: str, inputs: Mapping[str, Any]) -> Iterator["Draft"]:
        """A folder to fill; it joins the store when the block ends without an exception, and vanishes otherwise.

        Args:
            kind: What is made.
            inputs: JSON values that decide what it holds.

        Raises:
            ConfigurationError: The store cannot be written, or is full; other failures of the block pass as they are.
        """
        key = key_of(inputs)
        target = self.root / kind / key
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            (self.root / _CACHE_TAG).write_text(_TAG_TEXT, encoding="utf-8")
            draft = Draft(target.with_name(f".draft-{key}-{os.getpid()}"))
            shutil.rmtree(draft.path, ignore_errors=True)  # of a process with the same id that was killed
            draft.path.mkdir()
            handle = os.open(draft.path, os.O_RDONLY)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            with suppress(OSError):  # on a file system without locks no draft is ever taken for abandoned
                fcntl.flock(handle, fcntl.LOCK_EX)
            _remove_abandoned(target.parent)
            yield draft
            draft.finish({"kind": kind, "key": key, "inputs": dict(inputs)})
            shutil.rmtree(target, ignore_errors=True)  # what an interrupted run left, or the same bytes
            draft.path.replace(target)
        except OSError as error:
            if not (is_full(error) or draft.holds(error.filename)):  # of whatever else the block reads and writes
                raise
            raise self._unwritable(error) from error
        finally:
            os.close(handle)
            shutil.rmtree(draft.path, ignore_errors=True)

    def _unwritable(self, error: OSError) -> ConfigurationError:
        advice = "Set MENS_STORE_ROOT to a folder that you may write and that has room."
        return ConfigurationError(f"{error.filename2 or error.filename or self.root}: {error.strerror}. {advice}")

    def built(
        self, kind: str, inputs: Mapping[str, Any], write: Callable[[Path], dict[str, Any]], *, anew: bool = False
    ) -> tuple[Artifact, bool]:
        """The artifact of these inputs, written if there is none; `latest` names it from now on.

        Args:
            kind: What it is.
            inputs: JSON values that decide what it holds.
            write: Fills a folder, and returns what the manifest shall say besides.
            anew: Write it although there is one, and replace that.

        Returns:
            The artifact, and whether it was taken as it was.

        Raises:
            ConfigurationError: The store cannot be written.
        """
        found = None if anew else self.find(kind, inputs)
        if found is None:
            with self.writing(kind, inputs) as draft:
                draft.extra = write(draft.path)
        artifact = found or self.find(kind, inputs)
        assert artifact is not None, "what was just written is there"  # noqa: S101 - our own impossibility
        self.point("latest", artifact)
        return artifact, found is not None

    def point(self, name: str, artifact: Artifact, note: str = "") -> None:
        """Let a pointer name an artifact.

        Args:
            name: The pointer: `latest`.
            artifact: What it names from now on.
            note: A second line of the pointer, for whoever reads the file.

        Raises:
            ConfigurationError: The store cannot be written.
        """
        pointer = self.root / artifact.kind / name
        temporary = pointer.with_name(f".{name}.{os.getpid()}")
        try:
            with temporary.open("w", encoding="utf-8") as content:
                content.write(f"{artifact.key}\n{note}".rstrip("\n") + "\n")
                content.flush()
                os.fsync(content.fileno())
            temporary.replace(pointer)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            temporary.unlink(missing_ok=True)

    def pointed(self, kind: str, name: str) -> str | None:
        """The key that a pointer names; None when there is no such pointer.

        Args:
            kind: What it points to.
            name: The pointer.
        """
        pointer = self.root / kind / name
        return pointer.read_text(encoding="utf-8").partition("\n")[0].strip() if pointer.is_file() else None


@dataclass
class Draft:
    """An artifact in the making.

    Attributes:
        path: The folder to write into.
        extra: What the manifest shall say besides inputs and outputs.
    """

    path: Path
    extra: dict[str, Any] = field(default_factory=dict)

    def finish(self, manifest: dict[str, Any]) -> None:
        """Write the manifest, which makes the artifact complete.

        Args:
            manifest: What it says beside the outputs and what its maker added.
        """
        files = (path for path in sorted(self.path.rglob("*")) if path.is_file())
        outputs = {path.relative_to(self.path).as_posix(): _described(path) for path in files}
        text = json.dumps({**manifest, "outputs": outputs, **self.extra}, indent=2, sort_keys=True) + "\n"
        (self.path / MANIFEST).write_text(text, encoding="utf-8")

    def holds(self, name: object) -> bool:
        """Whether a failure that names a file is one of this folder or below it.

        Args:
            name: What `OSError.filename` is: a path, a number, or nothing.
        """
        return isinstance(name, str) and Path(name).is_relative_to(self.path)


def key_of(inputs: Mapping[str, Any]) -> str:
    """SHA-256 over inputs in canonical JSON, hexadecimal.

    Args:
        inputs: JSON values; the order of keys does not matter.
    """
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file, hexadecimal.

    Args:
        path: A file of any size.
    """
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _remove_abandoned(folder: Path) -> None:
    """Remove the drafts of processes that were killed: a process holds a lock on its draft for as long as it lives."""
    for path in folder.glob(".draft-*-*[0-9]"):
        with suppress(OSError):  # held, gone meanwhile, or not ours
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(handle).st_mtime > _YOUNG_SECONDS:
                    shutil.rmtree(path)
            finally:
                os.close(handle)


def _described(path: Path) -> dict[str, Any]:
    return {"sha256": digest_of(path), "bytes": path.stat().st_size}
