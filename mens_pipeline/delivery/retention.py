"""Retention of artifacts in the store: a pure plan, with a reason for each artifact."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from stat import S_ISDIR
from typing import Any, Final, Literal

from pydantic import Field

from mens_pipeline.errors import ConfigurationError, RefusedError, require_folder
from mens_pipeline.promotion.history import CHAMPION, champion_key, lock_champion, read_history
from mens_pipeline.storage.documents import TAG, lock_abandoned
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import MANIFEST, ArtifactStore
from mens_pipeline.storage.validation import Strict
from mens_pipeline.storage.yaml_file import load_model

_DAY: Final = 86_400
_KEEPS_PARENTS: Final = frozenset(
    (Kind.PROMOTED_ADAPTER, Kind.BENCHMARK_GATE, Kind.EVAL_RESULTS, Kind.SERVING_HANDOFF, Kind.QLORA_ADAPTER)
)
"""Kinds whose artifacts keep their parents: many nightly runs reuse a train set, or completions of a base."""


class Days(Strict):
    """Days to keep artifacts, by kind."""

    qlora_adapter: int = Field(ge=1, description="lora-adapter-<commit>.")
    eval_results: int = Field(ge=1, description="eval-gate-<commit>: the figures.")
    benchmark_gate: int = Field(ge=1, description="eval-gate-<commit>: the verdict.")
    generations: int = Field(ge=1, description="Completions of models.")
    merged_model: int = Field(ge=1, description="As large as its base, and can be merged again.")
    gguf_model: int = Field(ge=1, description="As large as its base, and can be written again.")
    serving_handoff: int = Field(ge=1, description="Useless without the model that it names.")


class RetentionPolicy(Strict):
    """Retention of artifacts and Dagster runs."""

    days: Days
    runs: int = Field(ge=1, description="Days to keep finished Dagster runs.")
    newest: int = Field(ge=1, description="Artifacts of every other kind to keep, newest first.")
    abandoned_days: int = Field(ge=1, description="Days without a write after which a folder counts as abandoned.")


@dataclass(frozen=True, slots=True)
class Item:
    """A folder of the store: an artifact, or an unfinished folder, whose `key` is its name.

    An unfinished folder is a work folder, a draft, or the rest of an artifact. `made` is the time of its completion or
    last write, in seconds since 1970. `is_held` tells whether a process is at work in it. `parents` are kind and key;
    `is_shared` tells whether the object storage has it.
    """

    kind: str
    key: str
    name: str
    path: Path
    num_bytes: int
    made: float
    is_artifact: bool
    parents: frozenset[tuple[str, str]]
    is_shared: bool = False
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of a store: pointers by kind and name, and the keys in the history of champions."""

    items: tuple[Item, ...]
    pointers: Mapping[tuple[str, str], str]
    history: frozenset[str]


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """Decision to keep or remove a folder, with the reason."""

    item: Item
    action: Literal["keep", "remove"]
    reason: str


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Decisions on all folders, by kind, newest first."""

    decisions: tuple[RetentionDecision, ...]

    @property
    def removed(self) -> tuple[RetentionDecision, ...]:
        """Decisions on folders to delete."""
        return tuple(decision for decision in self.decisions if decision.action == "remove")

    @property
    def num_bytes(self) -> int:
        """Size of all folders."""
        return sum(decision.item.num_bytes for decision in self.decisions)

    @property
    def num_removed_bytes(self) -> int:
        """Size of the folders to delete."""
        return sum(decision.item.num_bytes for decision in self.removed)


def load_retention(path: Path) -> RetentionPolicy:
    """Read `config/retention.yaml`, or raise a ConfigurationError that lists all errors in it."""
    return load_model(path, RetentionPolicy)


def plan_retention(stored: Stored, policy: RetentionPolicy, now: float) -> RetentionPlan:
    """Decide on every folder at the time `now`, in seconds since 1970."""
    items = sorted(stored.items, key=lambda item: (item.kind, -item.made, item.key))
    kept = {item.path: reason for item, reason in _find_kept(items, stored, policy, now)}
    _keep_parents(items, kept)
    return RetentionPlan(tuple(_decide(item, kept, policy, now) for item in items))


def _find_kept(
    items: Sequence[Item], stored: Stored, policy: RetentionPolicy, now: float
) -> Iterator[tuple[Item, str]]:
    names = {(kind, key): name for (kind, name), key in stored.pointers.items()}
    days = policy.days.model_dump()
    for kind, group in groupby(items, key=lambda item: item.kind):
        num_newer = 0
        for item in group:
            # A damaged manifest makes a folder look unfinished, so names and history come first.
            if (kind, item.key) in names:
                yield item, f"named by {names[kind, item.key]}"
            elif kind == Kind.PROMOTED_ADAPTER and item.key in stored.history:
                yield item, "in the history of champions"
            elif item.is_artifact and kind in days and _age(item, now) < days[kind]:
                yield item, f"younger than {days[kind]} days"
            elif item.is_artifact and kind not in days and num_newer < policy.newest:
                yield item, f"among the newest {policy.newest}"
            num_newer += item.is_artifact


def _keep_parents(items: Sequence[Item], kept: dict[Path, str]) -> None:
    by_key = {(item.kind, item.key): item for item in items}
    waiting = [item for item in items if item.path in kept]
    while waiting:
        child = waiting.pop()
        for ref in sorted(child.parents if child.kind in _KEEPS_PARENTS else ()):
            if (parent := by_key.get(ref)) is not None and parent.path not in kept:
                kept[parent.path] = f"{child.kind} {child.key[:12]} depends on it"
                waiting.append(parent)


def _decide(item: Item, kept: Mapping[Path, str], policy: RetentionPolicy, now: float) -> RetentionDecision:
    if item.path in kept:
        return RetentionDecision(item, "keep", kept[item.path])
    if not item.is_artifact:
        if item.is_held:
            return RetentionDecision(item, "keep", "a run is using it, or it cannot be locked")
        if _age(item, now) < policy.abandoned_days:
            return RetentionDecision(item, "keep", "a run may still be using it")
        return RetentionDecision(item, "remove", f"no run has written to it for {policy.abandoned_days} days")
    days = policy.days.model_dump()
    reason = f"older than {days[item.kind]} days" if item.kind in days else f"not among the newest {policy.newest}"
    return RetentionDecision(item, "remove", reason)


def _age(item: Item, now: float) -> float:
    return (now - item.made) / _DAY


_WORK: Final = re.compile(r"\.(work|draft)-.+")
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_POINTERS: Final = ("latest", CHAMPION)


def prune(
    store: ArtifactStore, policy: RetentionPolicy, now: float, *, apply: bool, show: Callable[[RetentionPlan], None]
) -> RetentionPlan:
    """Show a plan, carry it out if `apply` is set, and return it; no adapter can be promoted meanwhile.

    Raises:
        SourceNotFoundError: There is no store.
        RefusedError: The history of champions is damaged, or the clock is ahead of everything in the store.
        ConfigurationError: A folder cannot be removed, after earlier ones were, or the object storage does not respond.
    """
    if store.remote is None:
        require_folder(store.root, "Set MENS_STORE_ROOT to the store.")
    with lock_champion(store):
        champion_key(store)
        stored = read_store(store)
        plan = plan_retention(stored, policy, now)
        show(plan)
        if apply:
            _refuse_clock_ahead(stored, store.root / TAG, policy, now)
            _remove_all(plan, store)
    return plan


def _refuse_clock_ahead(stored: Stored, tag: Path, policy: RetentionPolicy, now: float) -> None:
    """Refuse a clock by which everything is too old, as after a jump."""
    written = [item.made for item in stored.items] + ([tag.stat().st_mtime] if tag.exists() else [])
    days, longest = (now - max(written, default=now)) / _DAY, max(policy.days.model_dump().values())
    if days > max(longest, policy.abandoned_days):
        found = f"by the clock nothing was written here for {days:.0f} days, longer than any retention period"
        advice = f"Set the clock; if it is right, touch {tag}, and run the command again."
        raise RefusedError(f"{tag.parent}: {found}. {advice}")


def read_store(store: ArtifactStore) -> Stored:
    """List the artifacts, unfinished folders, pointers and champion history of a store.

    `RefusedError` if the history is damaged, `ConfigurationError` if the object storage does not respond.
    """
    folders = sorted(path for path in store.root.iterdir() if path.is_dir()) if store.root.is_dir() else []
    items = {(item.kind, item.key): item for folder in folders for item in _list_items(folder)}
    items |= _shared_items(store, items)
    kinds = sorted({folder.name for folder in folders} | {kind for kind, _ in items})
    pointers = {(kind, name): key for kind in kinds for name in _POINTERS if (key := store.read_pointer(kind, name))}
    history = frozenset(event.key for event in read_history(store))
    return Stored(tuple(items[ref] for ref in sorted(items)), pointers, history)


def _shared_items(store: ArtifactStore, local: Mapping[tuple[str, str], Item]) -> dict[tuple[str, str], Item]:
    if store.remote is None:
        return {}
    found = {}
    for listed in filter(lambda one: _KEY.fullmatch(one.key), store.remote.list_artifacts()):
        ref = (listed.kind, listed.key)
        here = local.get(ref)
        if here is None or not here.is_artifact:
            path = store.root / listed.kind / listed.key
            content = store.remote.read_manifest(*ref).content
            here = _parse_item(ref, path, content, listed.modified) if listed.is_whole else None
            here = here or Item(*ref, "", path, listed.num_bytes, listed.modified, False, frozenset())  # noqa: FBT003
        found[ref] = replace(here, made=max(here.made, listed.modified), is_shared=True)
    return found


def _list_items(kind: Path) -> Iterator[Item]:
    for path in sorted(kind.iterdir()):
        is_key, manifest = _KEY.fullmatch(path.name), path / MANIFEST
        if path.is_dir() and not path.is_symlink() and (is_key or _WORK.fullmatch(path.name)):
            found = None
            with suppress(FileNotFoundError):  # a run may remove its folder meanwhile
                if is_key and manifest.is_file():
                    made = manifest.stat().st_mtime
                    found = _parse_item((kind.name, path.name), path, manifest.read_bytes(), made)
                yield found or _measure(kind.name, path)


def _parse_item(ref: tuple[str, str], path: Path, content: bytes, made: float) -> Item | None:
    try:
        manifest: dict[str, Any] = json.loads(content)
        outputs = manifest.pop("outputs").values()
        return Item(
            *ref,
            name=str(manifest.get("name") or manifest.get("training", {}).get("name", "")),
            path=path,
            num_bytes=sum(output["bytes"] for output in outputs) + len(content),
            made=made,
            is_artifact=True,
            parents=frozenset((parent["kind"], parent["key"]) for parent in manifest.get("parents", ())),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _measure(kind: str, path: Path) -> Item:
    sizes, times = [0], [path.stat().st_mtime]
    for place, folders, names in os.walk(path):
        for name in (*folders, *names):
            with suppress(FileNotFoundError):
                status = Path(place, name).lstat()
                sizes.append(0 if S_ISDIR(status.st_mode) else status.st_size)
                times.append(status.st_mtime)
    is_held = True
    with suppress(OSError), lock_abandoned(path):
        is_held = False
    return Item(kind, path.name, "", path, sum(sizes), max(times), False, frozenset(), is_held=is_held)  # noqa: FBT003


def _remove_all(plan: RetentionPlan, store: ArtifactStore) -> None:
    for item in [decision.item for decision in plan.removed]:
        if item.is_shared and store.remote is not None:
            store.remote.delete(item.kind, item.key)
        try:
            if item.path.exists():
                _remove(item.path) if item.is_artifact else _remove_abandoned(item)
        except OSError as error:
            message = f"{item.path}: {error.strerror}. Let this user write to the store, and run the command again."
            raise ConfigurationError(message) from error


def _remove_abandoned(item: Item) -> None:
    """Remove an unfinished folder, unless a run holds it or has written to it since the plan."""
    with suppress(BlockingIOError), lock_abandoned(item.path):
        if _measure(item.kind, item.path).made == item.made:
            _remove(item.path)


def _remove(path: Path) -> None:
    """Rename a folder to a draft before deleting it, so that an interruption leaves no damaged artifact."""
    gone = path if path.name.startswith(".") else path.with_name(f".draft-{path.name}-removed")
    if gone != path:
        shutil.rmtree(gone, ignore_errors=True)
        path.replace(gone)
    shutil.rmtree(gone)
