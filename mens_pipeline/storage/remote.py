"""Object storage of a store: files by digest, and small documents that change by compare-and-swap.

An artifact has an object `<kind>/<key>/<sha256>` for each file, and `<kind>/<key>/manifest.json`, which is uploaded
last. An interrupted writer leaves files without a manifest, and two writers of one key never touch each other's files.
A server that fails or does not answer raises `ConfigurationError`.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, Literal, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from mens_pipeline.errors import ConfigurationError

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import BackoffConfig, RetryConfig

Version = dict[str, str]
"""A server's names for one state of an object: `e_tag`, `version`."""

_MANIFEST: Final = "manifest.json"
_MOST_BYTES: Final = 67_108_864
"""A document (manifest, pointer, history) is smaller."""

_RENEWED_AFTER: Final = timedelta(hours=1)
"""Age at which the manifest of a reused artifact is uploaded again, since retention uses the age of the manifest."""

_PART_BYTES: Final = 16_777_216
_PARTS_AT_ONCE: Final = 4
_RETRY_SECONDS: Final = 25.0
"""Time to retry every request; a server restarts in less, so a restart fails no run."""
_BACKOFF: Final["BackoffConfig"] = {"init_backoff": timedelta(seconds=0.5), "max_backoff": timedelta(seconds=2)}
_ADVICE: Final = (
    "Make sure that MENS_STORE_URL names an existing bucket, that its server responds, and that the credentials of "
    "this process allow reads and writes. Finished artifacts stay in MENS_STORE_ROOT; run the command again."
)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A small object that was read; its version is None if there is no such object."""

    content: bytes = b""
    version: Version | None = None
    modified: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Listed:
    """The objects under one key.

    `modified` is the upload time of the newest, in seconds since 1970; `is_whole` is False without a manifest.
    """

    kind: str
    key: str
    num_bytes: int
    modified: float
    is_whole: bool


class Remote:
    """A bucket or a prefix of one."""

    def __init__(self, url: str) -> None:
        """Use a bucket, without a request yet.

        `url` is `s3://BUCKET/PREFIX`, `gs://...` or `az://...`; credentials come from the environment variables of the
        provider's own tools.
        """
        self.url = url.rstrip("/")
        with self._translate_errors(""):
            retries = int(_RETRY_SECONDS / _BACKOFF["init_backoff"].total_seconds())
            timeout = timedelta(seconds=_RETRY_SECONDS)
            retry: RetryConfig = {"max_retries": retries, "retry_timeout": timeout, "backoff": _BACKOFF}
            self._bucket = from_url(self.url, retry_config=retry)

    def read(self, name: str) -> StoredObject:
        """Read a document; an absent one is empty."""
        with self._translate_errors(name):
            try:
                found = obstore.get(self._bucket, name)
            except FileNotFoundError:
                return StoredObject()
            if found.meta["size"] > _MOST_BYTES:
                raise ConfigurationError(f"{self.url}/{name}: larger than {_MOST_BYTES} bytes. Use another folder.")
            named = ((name, found.meta[name]) for name in ("e_tag", "version"))
            version = {name: value for name, value in named if value is not None}
            return StoredObject(bytes(found.bytes()), version, found.meta["last_modified"])

    def swap(self, name: str, content: bytes, seen: Version | None) -> bool:
        """Write a document if its version is still `seen` (None: absent); return whether it was written."""
        with self._translate_errors(name):
            try:
                mode: UpdateVersion | Literal["create"] = "create" if seen is None else cast("UpdateVersion", seen)
                obstore.put(self._bucket, name, content, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def read_manifest(self, kind: str, key: str) -> StoredObject:
        """Read the manifest of an artifact, without its files."""
        return self.read(f"{kind}/{key}/{_MANIFEST}")

    def publish(self, folder: Path, kind: str, key: str, seen: Version | None) -> bool:
        """Upload an artifact in place of the version `seen`; return False if another writer was first."""
        manifest = (folder / _MANIFEST).read_bytes()
        there = self.read_manifest(kind, key)
        if there.version != seen:
            is_this = there.content == manifest
            if is_this and datetime.now(UTC) - there.modified > _RENEWED_AFTER:
                self.swap(f"{kind}/{key}/{_MANIFEST}", manifest, there.version)
            return is_this
        for name, sha256 in _outputs(manifest).items():
            with self._translate_errors(f"{kind}/{key}/{sha256}") as place:
                path = folder / name
                obstore.put(self._bucket, place, path, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        return self.swap(f"{kind}/{key}/{_MANIFEST}", manifest, seen) or (
            self.read_manifest(kind, key).content == manifest
        )

    def fetch(self, folder: Path, kind: str, key: str) -> bool:
        """Download an artifact into an empty folder and check each file; return whether it is complete."""
        manifest = self.read_manifest(kind, key).content
        try:
            outputs = _outputs(manifest)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return False
        for name, sha256 in outputs.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if self._download(f"{kind}/{key}/{sha256}", path) != sha256:
                return False
        (folder / _MANIFEST).write_bytes(manifest)
        return True

    def list_artifacts(self) -> list[Listed]:
        """List the artifacts, by kind and key, without documents such as pointers."""
        found: dict[tuple[str, str], Listed] = {}
        with self._translate_errors(""):
            for meta in chain.from_iterable(obstore.list(self._bucket)):
                kind, _, rest = meta["path"].partition("/")
                key, _, name = rest.rpartition("/")
                if key:
                    so_far = found.get((kind, key), Listed(kind, key, 0, 0.0, is_whole=False))
                    found[kind, key] = Listed(
                        kind,
                        key,
                        so_far.num_bytes + meta["size"],
                        max(so_far.modified, meta["last_modified"].timestamp()),
                        is_whole=so_far.is_whole or name == _MANIFEST,
                    )
        return sorted(found.values(), key=lambda one: (one.kind, one.key))

    def delete(self, kind: str, key: str) -> None:
        """Remove an artifact, its manifest first: from then on it counts as absent."""
        folder = f"{kind}/{key}"
        with self._translate_errors(folder):
            names = [meta["path"] for meta in chain.from_iterable(obstore.list(self._bucket, prefix=folder))]
            for name in sorted(names, key=lambda name: not name.endswith(f"/{_MANIFEST}")):
                obstore.delete(self._bucket, name)

    def _download(self, name: str, path: Path) -> str:
        """Download an object and return its SHA-256; an empty string if there is none."""
        digest = hashlib.sha256()
        with self._translate_errors(name), path.open("xb") as target:
            try:
                content = obstore.get(self._bucket, name)
            except FileNotFoundError:
                return ""
            for part in content.stream(_PART_BYTES):
                digest.update(part)
                target.write(part)
        return digest.hexdigest()

    @contextmanager
    def _translate_errors(self, name: str) -> Iterator[str]:
        try:
            yield name
        except (BaseError, FileNotFoundError) as error:
            words = str(error).strip().splitlines() or [type(error).__name__]
            place = f"{self.url}/{name}" if name else self.url
            raise ConfigurationError(f"{place}: {words[0][:400]}. {_ADVICE}") from error


def _outputs(manifest: bytes) -> dict[str, str]:
    """Return the digest of each file of a manifest, which may be untrusted; raise `ValueError` and others."""
    outputs = {name: output["sha256"] for name, output in json.loads(manifest)["outputs"].items()}
    for name, sha256 in outputs.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name or name in {"", ".", _MANIFEST}:
            raise ValueError(f"{name!r} is not a file name")
        if len(bytes.fromhex(sha256)) != hashlib.sha256().digest_size:
            raise ValueError(f"{sha256!r} is not a SHA-256")
    return outputs
