"""Which adapter is in use, and which were: a pointer that is replaced atomically, and a log that is only added to."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.corpus.jsonl import read_models
from mens_pipeline.corpus.store import Artifact, ArtifactStore, locked
from mens_pipeline.errors import RefusedError

KIND: Final = "promoted_adapter"
CHAMPION: Final = "champion"
HISTORY: Final = "history.jsonl"
_LOCK: Final = ".lock"


class HistoryEvent(BaseModel):
    """One change of the champion."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    timestamp_unix: int = Field(ge=0)
    action: Literal["promote", "override", "rollback"]
    key: str = Field(description="The champion from now on, in the store.")
    previous: str | None = Field(description="The champion before.")
    adapter_sha256: str = Field(description="Of the weights of the champion from now on.")
    withdrawn_sha256: str | None = Field(default=None, description="Of the weights that a rollback took out of use.")
    reason: str = Field(description="Why, for people.")


def champion_key(store: ArtifactStore) -> str | None:
    """The adapter that is in use; None before the first promotion.

    Args:
        store: Where promoted adapters are kept.
    """
    return store.pointed(KIND, CHAMPION)


def champion_of(store: ArtifactStore) -> Artifact | None:
    """The adapter that is in use, as an artifact; None before the first promotion.

    Args:
        store: Where promoted adapters are kept.

    Raises:
        RefusedError: The pointer names an adapter that is gone.
    """
    key = champion_key(store)
    if key is None:
        return None
    champion = store.get(KIND, key)
    if champion is None:
        raise RefusedError(f"{store.root / KIND}: the champion {key[:12]} is gone. Restore it, or promote another one.")
    return champion


def rival_of(store: ArtifactStore, adapter_sha256: str) -> Artifact | None:
    """The adapter that a candidate is compared with: the champion, or what it took the place of if it is the champion.

    So the comparison of a candidate stays the same when it has won.

    Args:
        store: Where promoted adapters are kept.
        adapter_sha256: Of the weights of the candidate.

    Raises:
        RefusedError: The pointer names an adapter that is gone.
    """
    champion = champion_of(store)
    if champion is None or champion.manifest["inputs"]["adapter_sha256"] != adapter_sha256:
        return champion
    previous = promotion_of(store, champion.key).previous
    return store.get(KIND, previous) if previous is not None else None


def promotion_of(store: ArtifactStore, key: str) -> HistoryEvent:
    """The event that last promoted an adapter.

    Args:
        store: Where promoted adapters are kept.
        key: A promoted adapter.

    Raises:
        RefusedError: The history does not tell of it.
    """
    for event in reversed(history_of(store)):
        if event.key == key and event.action != "rollback":
            return event
    raise RefusedError(f"{store.root / KIND / HISTORY}: nothing about {key[:12]}. Restore the file.")


def usable_before(store: ArtifactStore, present: Artifact) -> str | None:
    """The adapter that was promoted last before the present one, has other weights and is not withdrawn; by its key.

    Args:
        store: Where promoted adapters are kept.
        present: The champion.

    Returns:
        None when there is none.

    Raises:
        RefusedError: The history does not tell of the champion.
    """
    event = promotion_of(store, present.key)
    passed_over = {*withdrawn(store), event.adapter_sha256}
    promotions = [entry for entry in history_of(store) if entry.action != "rollback"]
    last = max(place for place, entry in enumerate(promotions) if entry == event)
    before = (entry for entry in reversed(promotions[:last]) if entry.adapter_sha256 not in passed_over)
    return next((entry.key for entry in before), None)


def history_of(store: ArtifactStore) -> tuple[HistoryEvent, ...]:
    """All changes of the champion, the oldest first.

    Args:
        store: Where promoted adapters are kept.
    """
    path = store.root / KIND / HISTORY
    return tuple(read_models(path, HistoryEvent)) if path.is_file() else ()


def withdrawn(store: ArtifactStore) -> frozenset[str]:
    """SHA-256 of adapters that a rollback took out of use and that were not promoted by hand since.

    Args:
        store: Where promoted adapters are kept.
    """
    out: set[str] = set()
    for event in history_of(store):
        if event.withdrawn_sha256 is not None:
            out.add(event.withdrawn_sha256)
        out.discard(event.adapter_sha256)
    return frozenset(out)


@contextmanager
def changing(store: ArtifactStore) -> Iterator[None]:
    """Hold the right to change the champion; two changes at once wait for each other.

    Args:
        store: Where promoted adapters are kept.
    """
    folder = store.root / KIND
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / _LOCK):
        yield


def record(store: ArtifactStore, event: HistoryEvent, champion: Artifact) -> None:
    """Let the pointer name a champion, and add the change to the history first.

    A process that dies between the two leaves the old champion in use, and a history that tells of the attempt.

    Args:
        store: Where promoted adapters are kept.
        event: The change.
        champion: The champion from now on.
    """
    path = store.root / KIND / HISTORY
    with path.open("a", encoding="utf-8") as history:
        history.write(json.dumps(event.model_dump(), ensure_ascii=False) + "\n")
        history.flush()
        os.fsync(history.fileno())
    store.point(CHAMPION, champion)
