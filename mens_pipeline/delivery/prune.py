"""The store as a plan sees it, and the removal of what the plan deletes."""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mens_pipeline.delivery.retention import Item, Plan, RetentionPolicy, Stored, plan_retention
from mens_pipeline.errors import ConfigurationError, SourceNotFoundError
from mens_pipeline.promotion.history import CHAMPION, champion_key, changing, history_of
from mens_pipeline.storage.store import MANIFEST, ArtifactStore

_WORK: Final = re.compile(r"\.(work|draft)-.+")
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_POINTERS: Final = ("latest", CHAMPION)


def prune(
    store: ArtifactStore, policy: RetentionPolicy, now: float, *, apply: bool, show: Callable[[Plan], None]
) -> Plan:
    """Plan what goes, show the plan, remove it if that is asked for, and return it.

    No adapter is promoted meanwhile.

    Raises:
        SourceNotFoundError: There is no store.
        RefusedError: The history of champions is damaged, so nobody knows what it names.
        ConfigurationError: A folder cannot be removed, or the object storage does not answer; those before it are gone.
    """
    if store.remote is None and not store.root.is_dir():
        raise SourceNotFoundError(f"{store.root}: no such folder. Set MENS_STORE_ROOT to the store.")
    with changing(store):
        champion_key(store)
        plan = plan_retention(read_store(store), policy, now)
        show(plan)
        if apply:
            _remove_all(plan, store)
    return plan


def read_store(store: ArtifactStore) -> Stored:
    """List the artifacts, unfinished folders, pointers and champion history of a store.

    Raises:
        RefusedError: The history of champions is damaged.
        ConfigurationError: The object storage does not answer.
    """
    folders = sorted(path for path in store.root.iterdir() if path.is_dir()) if store.root.is_dir() else []
    items = {(item.kind, item.key): item for folder in folders for item in _items_of(folder)}
    items |= _shared_items(store, items)
    kinds = sorted({folder.name for folder in folders} | {kind for kind, _ in items})
    pointers = {(kind, name): key for kind in kinds for name in _POINTERS if (key := store.pointed(kind, name))}
    history = frozenset(event.key for event in history_of(store))
    return Stored(tuple(items[ref] for ref in sorted(items)), pointers, history)


def _shared_items(store: ArtifactStore, local: Mapping[tuple[str, str], Item]) -> dict[tuple[str, str], Item]:
    """Return what the object storage has, used when it was last used here or put there."""
    if store.remote is None:
        return {}
    found = {}
    for listed in filter(lambda one: _KEY.fullmatch(one.key), store.remote.listed()):
        ref = (listed.kind, listed.key)
        here = local.get(ref)
        if here is None or not here.is_artifact:
            path = store.root / listed.kind / listed.key
            text = store.remote.manifest_of(*ref).content.decode(errors="replace")
            here = _item_of(ref, path, text, listed.modified) if listed.is_whole else None
            size, made = listed.num_bytes, listed.modified
            here = here or Item(*ref, "", path, size, made, False, frozenset())  # noqa: FBT003
        found[ref] = replace(here, made=max(here.made, listed.modified), is_shared=True)
    return found


def _items_of(kind: Path) -> Iterator[Item]:
    """Yield the artifacts of a kind, and its folders that never became one; pointers, locks and logs are no folders."""
    for path in sorted(kind.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if _KEY.fullmatch(path.name) and (path / MANIFEST).is_file():
                yield _artifact(kind.name, path)
            elif _KEY.fullmatch(path.name) or _WORK.fullmatch(path.name):
                yield _leftover(kind.name, path)


def _artifact(kind: str, path: Path) -> Item:
    manifest = path / MANIFEST
    found = _item_of((kind, path.name), path, manifest.read_text(encoding="utf-8"), manifest.stat().st_mtime)
    return found or _leftover(kind, path)


def _item_of(ref: tuple[str, str], path: Path, text: str, made: float) -> Item | None:
    """Return an artifact by its manifest; None where that is none, so that it is as good as absent."""
    try:
        manifest: dict[str, Any] = json.loads(text)
        outputs = manifest.pop("outputs").values()
        return Item(
            *ref,
            name=str(manifest.get("name") or manifest.get("training", {}).get("name", "")),
            path=path,
            num_bytes=sum(output["bytes"] for output in outputs) + len(text.encode()),
            made=made,
            is_artifact=True,
            parents=frozenset((parent["kind"], parent["key"]) for parent in manifest.get("parents", ())),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _leftover(kind: str, path: Path) -> Item:
    sizes, times = [0], [path.stat().st_mtime]
    for found in path.rglob("*"):
        status = found.lstat()
        sizes.append(0 if found.is_dir() else status.st_size)
        times.append(status.st_mtime)
    return Item(kind, path.name, "", path, sum(sizes), max(times), False, frozenset())  # noqa: FBT003


def _remove_all(plan: Plan, store: ArtifactStore) -> None:
    for decision in plan.removed:
        item = decision.item
        if item.is_shared and store.remote is not None:
            store.remote.delete(item.kind, item.key)
        try:
            if item.path.exists():
                _remove(item.path)
        except OSError as error:
            message = f"{error.filename}: {error.strerror}. Let this user write to the store, and run the same again."
            raise ConfigurationError(message) from error


def _remove(path: Path) -> None:
    """Take a folder out of the store at once, then file by file; what is left if that is interrupted is a draft."""
    gone = path if path.name.startswith(".") else path.with_name(f".draft-{path.name}-removed")
    if gone != path:
        shutil.rmtree(gone, ignore_errors=True)
        path.replace(gone)
    shutil.rmtree(gone)
