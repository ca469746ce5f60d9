"""A content-addressed store: `<root>/<kind>/<sha256>/...` with a manifest that is written last.

A folder without a manifest, or with the manifest of another artifact, counts as absent. Pointers such as `latest` are
documents next to the folders, for people; stages pass keys. With object storage, several machines share the artifacts,
and the folder is a cache. A store that cannot be read or written, or is full, raises `ConfigurationError`.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.documents import LOCK, Documents, draft_folder, hold_lock, tag_as_cache, unwritable
from mens_pipeline.storage.files import is_full
from mens_pipeline.storage.kinds import ArtifactFile
from mens_pipeline.storage.validation import FORMAT_VERSION, errors_in, newer_format

if TYPE_CHECKING:
    from mens_pipeline.storage.remote import Remote, Version
    from mens_pipeline.storage.signing import Signing

MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
"""Format version of manifests."""
_KIND: Final = re.compile(r"\w+")
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_SOUND: Final[set[tuple[Path, str]]] = set()
"""Artifacts that were found unchanged: folder and hash of the outputs in the manifest."""


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """The kind and key of an artifact and of its parents."""

    kind: str
    key: str
    parents: tuple["ArtifactRef", ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Build a reference from the result of `as_json`."""
        return cls(value["kind"], value["key"], tuple(map(cls.from_json, value["parents"])))

    def as_json(self) -> dict[str, Any]:
        """Return the reference in JSON types."""
        return {"kind": self.kind, "key": self.key, "parents": [parent.as_json() for parent in self.parents]}

    def of(self, kind: str) -> "ArtifactRef":
        """Return the nearest artifact of a kind: this one or an ancestor; raise `LookupError` if there is none."""
        level = [self]
        while level:
            for ref in level:
                if ref.kind == kind:
                    return ref
            level = [parent for ref in level for parent in ref.parents]
        raise LookupError(f"{self.kind} {self.key[:12]}: rests on no {kind}")


@dataclass(frozen=True, slots=True)
class Artifact:
    """A complete folder of the store; its key is the SHA-256 of the inputs, hexadecimal."""

    kind: str
    key: str
    path: Path
    manifest: dict[str, Any]

    @property
    def parents(self) -> tuple[ArtifactRef, ...]:
        """The artifacts that it was made from."""
        return tuple(ArtifactRef(parent["kind"], parent["key"]) for parent in self.manifest.get("parents", ()))

    @property
    def inputs(self) -> dict[str, Any]:
        """Everything that decided its content, under the names that the stage uses."""
        inputs: dict[str, Any] = self.manifest["inputs"]
        return inputs

    @property
    def data_version(self) -> str:
        """SHA-256 of its key and all its files, hexadecimal."""
        return key_of({"key": self.key, "outputs": self._outputs})

    @property
    def outputs(self) -> dict[str, str]:
        """Relative path of each file -> its SHA-256, hexadecimal."""
        return {name: output["sha256"] for name, output in self._outputs.items()}

    @property
    def _outputs(self) -> dict[str, Any]:
        outputs: dict[str, Any] = self.manifest["outputs"]
        return outputs

    def file(self, name: ArtifactFile) -> Path:
        """Return the path of one of its files."""
        return self.path / name

    def ref(self, *parents: ArtifactRef) -> ArtifactRef:
        """Return a reference to it with these parents."""
        return ArtifactRef(self.kind, self.key, parents)

    def find_changed(self) -> tuple[str, ...]:
        """Return the outputs that are missing or changed."""
        found = ((name, self.path / name, sha256) for name, sha256 in self.outputs.items())
        return tuple(name for name, path, sha256 in found if not path.is_file() or digest_of(path) != sha256)

    def is_damaged(self) -> bool:
        """Return whether an output is missing or changed; a sound artifact is checked once per process."""
        seen = (self.path, key_of(self._outputs))
        if seen not in _SOUND and not self.find_changed():
            _SOUND.add(seen)
        return seen not in _SOUND


class Details(BaseModel):
    """Fields that a stage adds to the manifest of its artifact, for later stages to read."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def of(cls, artifact: Artifact) -> Self:
        """Read the manifest of an artifact; `RefusedError` if it lacks a field, as another version may write it."""
        try:
            return cls.model_validate(artifact.manifest)
        except ValidationError as error:
            place = artifact.path / MANIFEST
            raise RefusedError(f"{place}: {errors_in(error)}. Delete the folder, and run the command again.") from error


class ArtifactStore:
    """The store in one folder, with object storage if `remote` is given."""

    def __init__(self, root: Path, remote: "Remote | None" = None, signing: "Signing | None" = None) -> None:
        """Use a folder, which the first write creates."""
        self.root = root
        self.documents = Documents(root, remote)
        self.remote, self.signing = remote, signing

    def find(self, kind: str, inputs: Mapping[str, Any]) -> Artifact | None:
        """Return the artifact of these inputs, if it is complete."""
        return self.get(kind, key_of(inputs))

    def get(self, kind: str, key: str) -> Artifact | None:
        """Return the artifact of a key, if it is complete here or in the object storage.

        A key that is not 64 hexadecimal digits, such as a path out of the store, has no artifact.
        """
        if _KEY.fullmatch(key) is None:
            return None
        return _read(kind, key, self.root / kind / key) or self._pull(kind, key)

    def holding(self, *paths: Path) -> tuple[Artifact, ...]:
        """Return the artifacts that contain some paths, each once; ignore paths outside the store."""
        roots = (self.root.resolve(), *(path.resolve() for path in paths))
        inside = (path.relative_to(roots[0]).parts[:2] for path in roots[1:] if path.is_relative_to(roots[0]))
        found = (self.get(*parts) for parts in dict.fromkeys(inside) if len(parts) > 1)
        return tuple(artifact for artifact in found if artifact is not None)

    def locate(self, path: Path) -> Path:
        """Translate the path of a file in an artifact, perhaps on another machine, to its path here."""
        for place, (kind, key) in enumerate(pairwise(path.parts), start=2):
            if not path.exists() and _KIND.fullmatch(kind) and (found := self.get(kind, key)) is not None:
                return found.path.joinpath(*path.parts[place:])
        return path

    @contextmanager
    def writing(
        self, kind: str, inputs: Mapping[str, Any], parents: Sequence[Artifact] = (), seen: "Version | None" = None
    ) -> Iterator["Draft"]:
        """Open a draft to fill; it joins the store if the block ends without an exception, and is deleted otherwise.

        An equal artifact that another process wrote meanwhile stays. In the object storage, any artifact that was
        published meanwhile stays; the draft replaces only the version `seen`. Exceptions of the block that are not
        about the store pass unchanged.
        """
        key = key_of(inputs)
        with self._draft(kind, key) as draft:
            yield draft
            refs = [{"kind": parent.kind, "key": parent.key} for parent in parents]
            draft.finish({"kind": kind, "key": key, "inputs": dict(inputs), "parents": refs})
            self._place(draft.path, self.root / kind / key)
            self._agree(kind, key, seen)

    @contextmanager
    def _draft(self, kind: str, key: str) -> Iterator["Draft"]:
        """Open a draft; exceptions of the block that are not about the store pass unchanged."""
        target, draft = self.root / kind / key, None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            tag_as_cache(self.root)
            with draft_folder(target) as path:
                draft = Draft(path)
                yield draft
        except OSError as error:
            if draft is None or is_full(error) or draft.holds(error.filename, error.filename2):
                raise unwritable(error, self.root) from error
            raise  # about something else that the block reads or writes

    def _place(self, draft: Path, target: Path) -> None:
        """Move a complete draft into the store, unless an equal artifact is there."""
        kind, key = target.parts[-2:]
        made = _read(kind, key, draft)
        with hold_lock(self.root / LOCK):
            found = _read(kind, key, target)
            if found is None or made is None or found.manifest != made.manifest or found.find_changed():
                if target.exists():  # incomplete, damaged, or to be made again
                    shutil.rmtree(target.replace(draft.with_suffix(".old")))
                draft.replace(target)

    def _pull(self, kind: str, key: str) -> Artifact | None:
        """Copy an artifact from the object storage and return it; None if it is incomplete there."""
        if self.remote is None or not self.remote.read_manifest(kind, key).content:
            return None
        with self._draft(kind, key) as draft:
            if not self.remote.fetch(draft.path, kind, key) or _read(kind, key, draft.path) is None:
                return None
            self._place(draft.path, self.root / kind / key)
        return _read(kind, key, self.root / kind / key)

    def _agree(self, kind: str, key: str, seen: "Version | None") -> None:
        """Publish the local artifact of a key, or fetch the one that another machine published."""
        while self.remote is not None and not self.remote.publish(self.root / kind / key, kind, key, seen):
            if self._pull(kind, key) is not None:
                return
            seen = self.remote.read_manifest(kind, key).version  # theirs is damaged: replace it

    def build(
        self,
        kind: str,
        inputs: Mapping[str, Any],
        write: Callable[[Path], dict[str, Any]],
        parents: Sequence[Artifact] = (),
        *,
        again: bool = False,
    ) -> tuple[Artifact, bool]:
        """Return the artifact of these inputs, made if it is absent or damaged, and whether it was reused.

        `write` fills a folder and returns further fields of the manifest; `again` replaces an existing artifact.
        The pointer `latest` then names the artifact.
        """
        key = key_of(inputs)
        # Read first: an artifact that is published from now on is not replaced.
        seen = self.remote.read_manifest(kind, key).version if self.remote is not None else None
        found = None if again else self.get(kind, key)
        if found is not None and found.is_damaged():
            found = self._pull(kind, key)
        if found is None:
            with self.writing(kind, inputs, parents, seen) as draft:
                draft.extra = write(draft.path)
        else:
            self._agree(kind, key, None)
            os.utime(found.path / MANIFEST)  # retention uses the time of the last use
        made = _read(kind, key, self.root / kind / key)
        assert made is not None, "it was just written or found"  # noqa: S101 - an internal invariant
        self.point("latest", made)
        return made, found is not None

    def point(self, name: str, artifact: Artifact) -> None:
        """Set a pointer to an artifact."""
        self.documents.amend(artifact.kind, name, lambda _found: f"{artifact.key}\n".encode())

    def latest(self, kind: str) -> Artifact | None:
        """Return the artifact of a kind that was last made or reused, if it is there."""
        return self.get(kind, self.read_pointer(kind, "latest") or "")

    def read_pointer(self, kind: str, name: str) -> str | None:
        """Return the key in a pointer; None without such a pointer."""
        content = self.documents.read(kind, name).decode(errors="replace")
        return content.partition("\n")[0].strip() if content else None


@dataclass
class Draft:
    """An unfinished artifact, with further fields of its manifest."""

    path: Path
    extra: dict[str, Any] = field(default_factory=dict)

    def finish(self, manifest: dict[str, Any]) -> None:
        """Write the manifest, which makes the artifact complete."""
        files = (path for path in sorted(self.path.rglob("*")) if path.is_file())
        outputs = {
            path.relative_to(self.path).as_posix(): {"sha256": digest_of(path), "bytes": path.stat().st_size}
            for path in files
        }
        content = {FORMAT_VERSION: _FORMAT, **manifest, "outputs": outputs, **self.extra}
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        (self.path / MANIFEST).write_text(text, encoding="utf-8")

    def holds(self, *names: object) -> bool:
        """Return whether one of the file names of an `OSError` is in this folder."""
        return any(isinstance(name, str) and Path(name).is_relative_to(self.path) for name in names)


def _read(kind: str, key: str, path: Path) -> Artifact | None:
    """Read a folder if it is the complete artifact of a key; refuse one of newer code, which must not be replaced."""
    try:
        found = Artifact(str(kind), key, path, json.loads((path / MANIFEST).read_text(encoding="utf-8")))
        texts = [*found.outputs.values(), *(text for ref in found.parents for text in (ref.kind, ref.key))]
        is_its_own = found.manifest["kind"] == kind and key_of(found.inputs) == key and {*map(type, texts)} <= {str}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if newer := newer_format(found.manifest.get(FORMAT_VERSION, 1), _FORMAT):
        raise RefusedError(f"{path / MANIFEST}: {newer}.")
    return found if is_its_own else None


def key_of(inputs: Mapping[str, Any]) -> str:
    """Compute the SHA-256 of inputs in canonical JSON, hexadecimal; the order of keys does not matter."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(path: Path) -> str:
    """Compute the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
