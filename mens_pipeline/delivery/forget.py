"""Withdraw a file, the files of a commit, or a licence: affected models, and the entries of `config/forgotten.yaml`."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import ValidationError

from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.corpus.extract.forgotten import NUM_DIGITS, Forgotten, SourcePolicy, load_forgotten
from mens_pipeline.corpus.extract.git import run_git
from mens_pipeline.corpus.extract.licences import Licences
from mens_pipeline.corpus.extract.sources import PAGE_SUFFIXES, VOX_SUFFIXES, files_below, shown_name
from mens_pipeline.corpus.schema.records import SourceKind, read_pairs
from mens_pipeline.delivery.lineage import Link, link, list_artifacts, walk
from mens_pipeline.errors import ConfigurationError, RefusedError, did_you_mean
from mens_pipeline.promotion.bill import SeenFile, files_in_bill, read_sources
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.jsonl import write_text
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore

_COMMIT: Final = re.compile("[0-9a-f]{7,40}")
_NO_FILE: Final = frozenset((SourceKind.SYNTHETIC, SourceKind.TELEMETRY))
_LOG: Final = ("log", "-1", "-m", "--first-parent", "--no-renames", "--diff-filter=d", "--format=", "--name-only", "-z")
_LARGEST: Final = 67_108_864  # largest file to hash, in bytes


@dataclass(frozen=True, slots=True)
class Forgetting:
    """New entries of the list, and the models trained on the files in them, champion included."""

    entries: tuple[Forgotten, ...]
    seen_by: tuple[Link, ...]


def plan_forgetting(store: ArtifactStore, root: Path, what: str, reason: str = "") -> Forgetting:
    """Find the entries for a path, a commit or an SPDX id, and the models trained on their files.

    `RefusedError` if it is none of these, or names no file of the workspace or of a model in the store.
    """
    models = list(_list_models(store))
    here = {shown_name(path, root): path for path in files_below(root, (*VOX_SUFFIXES, *PAGE_SUFFIXES))}
    licences = Licences(root)
    files = {file for _, seen in models for file in seen} | {_look_at(here[name], name, licences) for name in here}
    entries = tuple(_find_entries(what, root, files, reason))
    policy = SourcePolicy.of(entries)
    return Forgetting(entries, tuple(model for model, seen in models if any(policy.refuses(*file) for file in seen)))


def add_entries(path: Path, entries: tuple[Forgotten, ...]) -> tuple[Forgotten, ...]:
    """Append entries to the list, and return the new ones.

    `ConfigurationError` if the list is invalid or cannot be written.
    """
    known = [entry.model_dump() for entry in load_forgotten(path)]
    new = tuple(entry for entry in entries if entry.model_dump() not in known)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if any(line[:1] not in {"", "-", "#", " "} for line in text.splitlines()):
        raise ConfigurationError(f"{path}: expected a list of entries that each start with `-`. Correct the file.")
    if new:
        gap = "" if text.endswith("\n") or not text else "\n"
        write_text(path, text + gap + "".join(entry.format() for entry in new))
    return new


def _find_entries(what: str, root: Path, files: set[SeenFile], reason: str) -> Iterator[Forgotten]:
    paths = {file.path for file in files}
    name = _name_in(what, root)
    if any(PurePosixPath(path).is_relative_to(name) for path in paths) and PurePosixPath(name).parts:
        yield _entry(name, files, reason)
        return
    if _COMMIT.fullmatch(what):
        changed = (run_git(root, (*_LOG, "--relative", what, "--")) or "").split("\0")
        touched = sorted(paths.intersection(changed))
        if not touched:
            advice = "Name a commit that `git log` shows there, or a path."
            raise RefusedError(f"{what}: expected a commit of {root} that changed a program or a page. {advice}")
        yield from (_entry(path, files, reason) for path in touched)
        return
    try:
        licence = SourcePolicy(deny=(what,))
    except ValidationError:
        near = did_you_mean(name, paths) or "`mens lineage champion` lists the files of a model."
        expected = f"expected a file or folder of {root}, a file that trained a stored model, a commit, or an SPDX id"
        raise RefusedError(f"{what}: not found; {expected}. {near}") from None
    if not any(file.licence is not None and licence.denies(file.licence) for file in files):
        advice = "To keep it out in future, add it to `licences.deny` of config/pipeline.yaml."
        raise RefusedError(f"{what}: no file of {root} or of a model in the store has this licence. {advice}")
    yield Forgotten(licence=what, reason=reason)


def _entry(path: str, files: set[SeenFile], reason: str) -> Forgotten:
    entry = Forgotten(path=path)
    contents = {file.sha256[:NUM_DIGITS] for file in files if entry.holds(file.path, "") and file.sha256}
    return Forgotten(path=path, sha256=tuple(sorted(contents)), reason=reason)


def _name_in(what: str, root: Path) -> str:
    """Return a path relative to the workspace if it exists there, else unchanged."""
    path = Path(what).absolute()
    is_inside = path.exists() and path.is_relative_to(root.absolute())
    return path.relative_to(root.absolute()).as_posix() if is_inside else str(PurePosixPath(what))


def _look_at(path: Path, name: str, licences: Licences) -> SeenFile:
    try:
        data = read_regular(path, _LARGEST, below=licences.root)
    except OSError:
        return SeenFile(name, "", None)
    return SeenFile(name, hashlib.sha256(data).hexdigest(), licences.find_licence(path, data))


def _list_models(store: ArtifactStore) -> Iterator[tuple[Link, frozenset[SeenFile]]]:
    """Yield each model of the store with the source files of its train set, as far as they are on record."""
    items = list_artifacts(store)
    parents = {ref: item.parents for ref, item in items.items()}
    read_files = cache(partial(_read_files, store))  # many adapters share a train set
    for ref in items:
        promoted = store.get(*ref) if ref[0] == Kind.PROMOTED_ADAPTER else None
        if promoted is not None:
            yield link(items, ref), frozenset(files_in_bill(promoted))
        elif ref[0] in {Kind.QLORA_ADAPTER, Kind.SCRATCH_MODEL}:
            sets = (read_files(key) for kind, key in walk(parents, ref) if kind == Kind.MIXED_TRAIN_SET)
            yield link(items, ref), frozenset[SeenFile]().union(*sets)


def _read_files(store: ArtifactStore, key: str) -> frozenset[SeenFile]:
    mixed = store.get(Kind.MIXED_TRAIN_SET, key)
    if mixed is None:
        return frozenset()
    train, (accounts, _) = mixed.file(TRAIN), read_sources(store, mixed.path)
    sources = {pair.source for pair in read_pairs(train) if pair.source is not None}
    places = {(source.path, source.blob) for source in sources if source.kind not in _NO_FILE}
    return frozenset(SeenFile(*place, accounts.get(place, {}).get("licence")) for place in places)
