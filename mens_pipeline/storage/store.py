"""A content-addressed store: `<root>/<kind>/<sha256>/...` with a manifest that is written last.

A folder without a manifest, or with that of another one, is as good as absent. Pointers such as `latest` are documents
beside the folders; they are for people, while stages hand over by key. Where object storage stands behind the folder,
it is what several machines agree on, and the folder is their cache. A store that cannot be read or written, or is full,
is a `ConfigurationError`.
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
"""Of manifests."""
_KIND: Final = re.compile(r"\w+")
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_SOUND: Final[set[tuple[Path, str]]] = set()
"""Folders of artifacts that were found as they were written, with what their manifests say of their files."""


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """The kind and key of an artifact, with those of the artifacts that it was made from."""

    kind: str
    key: str
    parents: tuple["ArtifactRef", ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return what `as_json` gave."""
        return cls(value["kind"], value["key"], tuple(map(cls.from_json, value["parents"])))

    def as_json(self) -> dict[str, Any]:
        """Return it in JSON types."""
        return {"kind": self.kind, "key": self.key, "parents": [parent.as_json() for parent in self.parents]}

    def of(self, kind: str) -> "ArtifactRef":
        """Return the nearest artifact of a kind among itself and what it was made from."""
        level = [self]
        while level:
            for ref in level:
                if ref.kind == kind:
                    return ref
            level = [parent for ref in level for parent in ref.parents]
        raise LookupError(f"{self.kind} {self.key[:12]}: rests on no {kind}")


@dataclass(frozen=True, slots=True)
class Artifact:
    """A complete folder of the store.

    Attributes:
        kind: What it is: `extracted_corpus`.
        key: SHA-256 over the inputs it was made from, hexadecimal.
        manifest: Inputs, parents, outputs with their digests, and what its maker added.
    """

    kind: str
    key: str
    path: Path
    manifest: dict[str, Any]

    @property
    def parents(self) -> tuple[ArtifactRef, ...]:
        """The artifacts it was made from."""
        return tuple(ArtifactRef(parent["kind"], parent["key"]) for parent in self.manifest.get("parents", ()))

    @property
    def inputs(self) -> dict[str, Any]:
        """All that decided what it holds, as the stage named it."""
        inputs: dict[str, Any] = self.manifest["inputs"]
        return inputs

    @property
    def data_version(self) -> str:
        """SHA-256 over all its files and all that decided what they hold, hexadecimal."""
        return key_of({"key": self.key, "outputs": self._outputs})

    @property
    def outputs(self) -> dict[str, str]:
        """The files of its folder by name, each with its SHA-256, hexadecimal."""
        return {name: output["sha256"] for name, output in self._outputs.items()}

    @property
    def _outputs(self) -> dict[str, Any]:
        outputs: dict[str, Any] = self.manifest["outputs"]
        return outputs

    def file(self, name: ArtifactFile) -> Path:
        """Return the path of one of its files."""
        return self.path / name

    def ref(self, *parents: ArtifactRef) -> ArtifactRef:
        """Return it by its key."""
        return ArtifactRef(self.kind, self.key, parents)

    def find_changed(self) -> tuple[str, ...]:
        """Return the outputs that are not as they were written."""
        return tuple(name for name, sha256 in self.outputs.items() if not self._is_as_written(self.path / name, sha256))

    def is_damaged(self) -> bool:
        """Return whether an output has changed since it was written; looked at once in a process."""
        seen = (self.path, key_of(self._outputs))
        if seen not in _SOUND and not self.find_changed():
            _SOUND.add(seen)
        return seen not in _SOUND

    @staticmethod
    def _is_as_written(path: Path, sha256: str) -> bool:
        return path.is_file() and digest_of(path) == sha256


class Details(BaseModel):
    """What a stage adds to the manifest of its artifact, as the stages read it that are handed one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def of(cls, artifact: Artifact) -> Self:
        """Read the manifest of an artifact.

        Raises:
            RefusedError: It lacks something; a version that kept other counts wrote it.
        """
        try:
            return cls.model_validate(artifact.manifest)
        except ValidationError as error:
            place = artifact.path / MANIFEST
            raise RefusedError(f"{place}: {errors_in(error)}. Delete the folder, and run the same again.") from error


class ArtifactStore:
    """The store below one folder, and behind it perhaps object storage."""

    def __init__(self, root: Path, remote: "Remote | None" = None, signing: "Signing | None" = None) -> None:
        """Use a folder; it is made on first writing."""
        self.root = root
        self.documents = Documents(root, remote)
        self.remote, self.signing = remote, signing

    def find(self, kind: str, inputs: Mapping[str, Any]) -> Artifact | None:
        """Return the artifact that was made from these inputs, if it is complete."""
        return self.get(kind, key_of(inputs))

    def get(self, kind: str, key: str) -> Artifact | None:
        """Return the artifact with this key, if it is complete here, or else in the object storage.

        Anything but 64 hexadecimal digits, such as a path out of the store, names none.
        """
        if _KEY.fullmatch(key) is None:
            return None
        return _read(kind, key, self.root / kind / key) or self._pull(kind, key)

    def holding(self, *paths: Path) -> tuple[Artifact, ...]:
        """Return the artifacts whose folders hold some paths, each once; paths outside the store are passed over."""
        roots = (self.root.resolve(), *(path.resolve() for path in paths))
        inside = (path.relative_to(roots[0]).parts[:2] for path in roots[1:] if path.is_relative_to(roots[0]))
        found = (self.get(*parts) for parts in dict.fromkeys(inside) if len(parts) > 1)
        return tuple(artifact for artifact in found if artifact is not None)

    def locate(self, path: Path) -> Path:
        """Return where a file of an artifact lies here, by a path that another machine may have written."""
        for place, (kind, key) in enumerate(pairwise(path.parts), start=2):
            if not path.exists() and _KIND.fullmatch(kind) and (found := self.get(kind, key)) is not None:
                return found.path.joinpath(*path.parts[place:])
        return path

    @contextmanager
    def writing(
        self, kind: str, inputs: Mapping[str, Any], parents: Sequence[Artifact] = (), seen: "Version | None" = None
    ) -> Iterator["Draft"]:
        """Open a folder to fill; it joins the store when the block ends without an exception, and is deleted otherwise.

        Where the same was written meanwhile by another process, that stays; in object storage, whatever was.

        In the object storage it may replace what was `seen` of this key. Failures of the block that are not the store's
        pass as they are.
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
        """Open a folder beside the one of an artifact; failures of the block that are not the store's pass."""
        target, draft = self.root / kind / key, None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            tag_as_cache(self.root)
            with draft_folder(target) as path:
                draft = Draft(path)
                yield draft
        except OSError as error:
            if draft is None or is_full(error) or draft.holds(error.filename):
                raise unwritable(error, self.root) from error
            raise  # of whatever else the block reads and writes

    def _place(self, draft: Path, target: Path) -> None:
        """Move a complete draft into the store, unless the same artifact is there already."""
        kind, key = target.parts[-2:]
        made = _read(kind, key, draft)
        with hold_lock(self.root / LOCK):
            found = _read(kind, key, target)
            if found is None or made is None or found.manifest != made.manifest or found.find_changed():
                if target.exists():  # what an interrupted run left, what is damaged, or what was forced
                    shutil.rmtree(target.replace(draft.with_suffix(".old")))
                draft.replace(target)

    def _pull(self, kind: str, key: str) -> Artifact | None:
        """Copy an artifact from the object storage into the folder and return it; None if it is not complete there."""
        if self.remote is None or not self.remote.read_manifest(kind, key).content:
            return None
        with self._draft(kind, key) as draft:
            if not self.remote.fetch(draft.path, kind, key) or _read(kind, key, draft.path) is None:
                return None
            self._place(draft.path, self.root / kind / key)
        return _read(kind, key, self.root / kind / key)

    def _agree(self, kind: str, key: str, seen: "Version | None") -> None:
        """Publish the artifact of a key as it lies here, or take the one that somebody else published."""
        while self.remote is not None and not self.remote.publish(self.root / kind / key, kind, key, seen):
            if self._pull(kind, key) is not None:
                return
            seen = self.remote.read_manifest(kind, key).version  # theirs is damaged, so ours takes its place

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

        `write` fills a folder, and returns what the manifest shall say besides. With `again` it replaces what is there.
        `latest` names the artifact from now on.
        """
        key = key_of(inputs)
        # Before it is looked for: whatever is published from now on is not replaced.
        seen = self.remote.read_manifest(kind, key).version if self.remote is not None else None
        found = None if again else self.get(kind, key)
        if found is not None and found.is_damaged():
            found = self._pull(kind, key)
        if found is None:
            with self.writing(kind, inputs, parents, seen) as draft:
                draft.extra = write(draft.path)
        else:
            self._agree(kind, key, None)
            os.utime(found.path / MANIFEST)  # retention goes by the last use
        made = _read(kind, key, self.root / kind / key)
        assert made is not None, "what was just written or found is there"  # noqa: S101 - our own impossibility
        self.point("latest", made)
        return made, found is not None

    def point(self, name: str, artifact: Artifact) -> None:
        """Let a pointer name an artifact."""
        self.documents.amend(artifact.kind, name, lambda _found: f"{artifact.key}\n".encode())

    def latest(self, kind: str) -> Artifact | None:
        """Return the artifact of a kind that was last made or taken up, if it is there."""
        return self.get(kind, self.read_pointer(kind, "latest") or "")

    def read_pointer(self, kind: str, name: str) -> str | None:
        """Return the key that a pointer names; None when there is no such pointer."""
        content = self.documents.read(kind, name).decode(errors="replace")
        return content.partition("\n")[0].strip() if content else None


@dataclass
class Draft:
    """An artifact in the making, with what its manifest shall say besides inputs and outputs."""

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

    def holds(self, name: object) -> bool:
        """Return whether a failure that names a file, a number or nothing is one of this folder or below it."""
        return isinstance(name, str) and Path(name).is_relative_to(self.path)


def _read(kind: str, key: str, path: Path) -> Artifact | None:
    """Return what lies in a folder, if it is the complete artifact of a key.

    Raises:
        RefusedError: Newer code wrote it: it is neither absent nor damaged, and nothing may take its place.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        is_its_own = manifest["kind"] == kind and key_of(manifest["inputs"]) == key
        is_its_own &= all(isinstance(output["sha256"], str) for output in manifest["outputs"].values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if newer := newer_format(manifest.get(FORMAT_VERSION, 1), _FORMAT):
        raise RefusedError(f"{path / MANIFEST}: {newer}.")
    return Artifact(manifest["kind"], key, path, manifest) if is_its_own else None


def key_of(inputs: Mapping[str, Any]) -> str:
    """Compute the SHA-256 over inputs in canonical JSON, whatever the order of keys, hexadecimal."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(path: Path) -> str:
    """Compute the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
