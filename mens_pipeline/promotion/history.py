"""The champion and its predecessors: a pointer that is replaced atomically, and an append-only log.

Each line of the log holds the SHA-256 of the line before it, and the pointer holds the hash of the line that set it, so
lost or changed lines are detected.

With a key, every line and the pointer are signed, and the pointer must name the last line. Each line names its store,
so a machine that promotes adapters refuses files from a copy of the store. Older files of the same store still pass:
anyone who kept them and can write to the store can restore them.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import dropwhile
from typing import Final, Literal, NamedTuple

from pydantic import Field, ValidationError

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.storage.documents import hold_lock, unwritable
from mens_pipeline.storage.jsonl import model_in
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import PRIVATE, Signing
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.storage.validation import Versioned, newer_than_known

KIND: Final = Kind.PROMOTED_ADAPTER
CHAMPION: Final = "champion"
HISTORY: Final = "history.jsonl"
_LOCK: Final = ".lock"
_ADVICE: Final = "Restore it from a backup: only this file records promotions and rollbacks."
_SIGNED: Final = (
    "Restore it from a backup. If the key is new, the store was moved or restored, or a promotion was interrupted, "
    "`mens promote --sign-history` prints the history and signs it as it is."
)
_HALF: Final = 16
"""Digits of each half of a store id: the origin, which copies share, and the location."""


class HistoryEvent(Versioned):
    """One change of the champion."""

    timestamp_unix: int = Field(ge=0)
    action: Literal["promote", "override", "rollback"]
    key: str = Field(description="Key of the new champion in the store.")
    previous: str | None = Field(description="Key of the former champion.")
    adapter_sha256: str = Field(description="SHA-256 of the weights of the new champion.")
    withdrawn_sha256: str | None = Field(default=None, description="SHA-256 of the weights that a rollback withdrew.")
    override_sha256: str | None = Field(default=None, description="SHA-256 of the signed override, if one was used.")
    reason: str = Field(description="Reason, for people.")
    store_id: str | None = Field(default=None, description="Id of the store; null until the line is written.")
    after_sha256: str | None = Field(
        default=None,
        description="SHA-256 of the previous line, or of no bytes for the first; null until the line is written.",
    )
    signature: str | None = Field(default=None, description="Signature of the other fields, if a key is set.")


class Seen(NamedTuple):
    """History and pointer before a change."""

    history: bytes
    pointer: bytes


def champion_key(store: ArtifactStore) -> str | None:
    """Return the key of the adapter in use; None before the first promotion.

    `RefusedError` if the pointer is missing although there is a history, the history lost the line that set it, or one
    of them is not signed.
    """
    pointer, log = store.documents.place(KIND, CHAMPION), store.documents.place(KIND, HISTORY)
    words = store.documents.read(KIND, CHAMPION).decode(errors="replace").split()
    # Read this after the pointer, because a change adds its line first.
    lines = _lines(store)
    details = {sha256: event.key for event, sha256 in lines}
    if not words:
        if not details:
            return None
        last = list(details.values())[-1]
        advice = f"Restore the file, or write the key of the adapter to use into it; the last one was {last}."
        raise RefusedError(f"{pointer}: no champion is named, but {HISTORY} records {len(details)} changes. {advice}")
    key, *of_event = words
    if key not in details.values():
        advice = f"{_ADVICE} Without a backup, delete {pointer} and the rest of {HISTORY}, and promote again."
        raise RefusedError(f"{log}: no entry for the champion {key[:12]}. {advice}")
    # A pointer that was repaired by hand holds only the key.
    if of_event and details.get(of_event[0]) != key:
        advice = f"{_ADVICE} Without a backup, write only {key} into {pointer}; rollbacks in lost lines are forgotten."
        raise RefusedError(f"{log}: the line that promoted {key[:12]} is missing. {advice}")
    if store.signing is not None:
        last, signature = [*details][-1], words[2] if len(words) > 2 else None  # noqa: PLR2004 - key, line, signature
        problem = store.signing.problem_of(signature, CHAMPION, key=key, line=last)
        if of_event and of_event[0] != last:
            problem = f"it names {key[:12]}, but the last line of {HISTORY} names {details[last][:12]}"
        # A machine that only verifies may serve a copy.
        made_in = lines[-1][0].store_id
        if store.signing.private is not None and made_in is not None and made_in != store_id_after(made_in, store):
            problem = f"the last line of {HISTORY} was written in a copy of this store or elsewhere"
        if problem is not None:
            raise RefusedError(f"{pointer}: {problem}. {_SIGNED}")
    return key


def store_id_after(before: str | None, store: ArtifactStore) -> str:
    """Return the id of a store whose last line has the id `before`; a different one if the store was copied since."""
    origin = before[:_HALF] if before is not None else secrets.token_hex(_HALF // 2)
    # A folder keeps its inode when it is renamed or mounted elsewhere; a copy has a different one.
    place = store.remote.url if store.remote is not None else store.root.stat().st_ino
    return origin + hashlib.sha256(f"{origin} {place}".encode()).hexdigest()[:_HALF]


def is_copy(one: str | None, other: str | None) -> bool:
    """Return whether two store ids have the same origin."""
    return one is not None and other is not None and one[:_HALF] == other[:_HALF]


def find_champion(store: ArtifactStore) -> Artifact | None:
    """Return the adapter in use; None before the first promotion.

    `RefusedError` if the pointer names a missing adapter, or pointer and history do not belong together.
    """
    key = champion_key(store)
    champion = store.get(KIND, key) if key is not None else None
    if champion is None and key is not None:
        raise RefusedError(f"champion {key[:12]} is gone from {store.root}. Restore it, promote its run, or roll back.")
    return champion


def find_last_change(store: ArtifactStore) -> HistoryEvent | None:
    """Return the event that put the adapter in use; a later one was interrupted. Errors as in `champion_key`."""
    key = champion_key(store)
    return next((event for event in reversed(read_history(store)) if event.key == key), None)


def describe_champion(store: ArtifactStore) -> str:
    """Describe the adapter in use: `0c3d2c6cb3be of 2026-01-02 12:00 UTC stays`; errors as in `champion_key`."""
    event = find_last_change(store)
    if event is None:
        return "no adapter is in use"
    since = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(event.timestamp_unix))
    return f"{event.adapter_sha256[:12]} of {since} stays"


def adapter_sha256_of(promoted: Artifact) -> str:
    """Return the digest of an adapter at its promotion."""
    digest: str = promoted.inputs["adapter_sha256"]
    return digest


def find_baseline(store: ArtifactStore, adapter_sha256: str) -> Artifact | None:
    """Return the baseline of a candidate: the champion, or the weights before it if the candidate is the champion.

    This keeps a comparison the same after the candidate is promoted.
    """
    present = find_last_change(store)
    if present is None or present.adapter_sha256 != adapter_sha256:
        return find_champion(store)
    previous: str | None = present.key
    for event in reversed(read_history(store)):  # the same weights may have been promoted under several keys
        if (event.key, event.adapter_sha256) == (previous, adapter_sha256) and event.action != "rollback":
            previous = event.previous
    return store.get(KIND, previous) if previous is not None else None


def find_usable_before(store: ArtifactStore, present: HistoryEvent) -> str | None:
    """Return the key of the newest earlier adapter with other weights that was not withdrawn; None without one."""
    passed_over = {*find_withdrawn(store), present.adapter_sha256}
    promotions = (event for event in reversed(read_history(store)) if event.action != "rollback")
    before = dropwhile(lambda event: event.key != present.key, promotions)
    return next((event.key for event in before if event.adapter_sha256 not in passed_over), None)


def read_history(store: ArtifactStore) -> tuple[HistoryEvent, ...]:
    """Return all changes of the champion, oldest first, without a truncated last line.

    `RefusedError` if a line is malformed, does not follow the one before it, or is not signed.
    """
    return tuple(event for event, _ in _lines(store))


def find_withdrawn(store: ArtifactStore) -> frozenset[str]:
    """Return the SHA-256 of adapters that a rollback withdrew and that were not promoted since."""
    out: set[str] = set()
    for event in read_history(store):
        if event.withdrawn_sha256 is not None:
            out.add(event.withdrawn_sha256)
        out.discard(event.adapter_sha256)
    return frozenset(out)


@contextmanager
def lock_champion(store: ArtifactStore) -> Iterator[Seen]:
    """Lock the champion against other changes on this machine.

    Yields the documents before the change; `record` compares them, to notice a change on another machine.
    """
    folder = store.root / KIND
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(hold_lock(folder / _LOCK))
        except OSError as error:
            raise unwritable(error, store.root) from error
        pointer = store.documents.read(KIND, CHAMPION)
        yield Seen(store.documents.read(KIND, HISTORY), pointer)


def record(store: ArtifactStore, event: HistoryEvent, champion: Artifact, seen: Seen) -> None:
    """Add a change to the history, then point to the champion.

    A process that dies in between leaves the old champion in use, and the change in the history. `RefusedError` if the
    history is damaged, or another machine changed the champion meanwhile.
    """
    before = _lines(store)
    event = event.model_copy(update={"store_id": store_id_after(before[-1][0].store_id if before else None, store)})
    line = _line(event, before[-1][1] if before else _sha256(b""), store.signing)
    kept = seen.history[: _complete(seen.history)]
    end = b"\n" if kept and not kept.endswith(b"\n") else b""
    store.documents.replace(KIND, HISTORY, seen.history, kept + end + line + b"\n")
    store.documents.replace(KIND, CHAMPION, seen.pointer, _pointer(champion.key, line, store.signing))


def sign_history(store: ArtifactStore) -> tuple[HistoryEvent, ...]:
    """Sign all lines of a history, point to the champion of the last one, and return the events.

    Use this for a new key, a moved store, or after an interrupted promotion; the caller vouches for every line.
    `RefusedError` if the history is damaged, or changed meanwhile; `ConfigurationError` if no key signs.
    """
    if store.signing is None:
        raise ConfigurationError(f"{PRIVATE}: not set. Set the key that signs evaluations, verdicts and champions.")
    with lock_champion(store) as seen:
        lines: list[bytes] = []
        events = [event for event, _ in _lines(store, is_signed=False)]
        if events:
            events[-1] = events[-1].model_copy(update={"store_id": store_id_after(events[-1].store_id, store)})
        for event in events:
            lines.append(_line(event, _sha256(lines[-1] if lines else b""), store.signing))
        if lines:
            store.documents.replace(KIND, HISTORY, seen.history, b"\n".join(lines) + b"\n")
            store.documents.replace(KIND, CHAMPION, seen.pointer, _pointer(events[-1].key, lines[-1], store.signing))
    return tuple(events)


def _line(event: HistoryEvent, after_sha256: str, signing: Signing | None) -> bytes:
    content = event.model_copy(update={"after_sha256": after_sha256}).model_dump(exclude={"signature"})
    signature = {"signature": signing.signature_of(HISTORY, event=content)} if signing is not None else {}
    return json.dumps({**content, **signature}, ensure_ascii=False).encode()


def _pointer(key: str, line: bytes, signing: Signing | None) -> bytes:
    sha256 = _sha256(line)
    signature = [signing.signature_of(CHAMPION, key=key, line=sha256)] if signing is not None else []
    return "".join(f"{word}\n" for word in (key, sha256, *signature)).encode()


def _lines(store: ArtifactStore, *, is_signed: bool = True) -> list[tuple[HistoryEvent, str]]:
    log, content = store.documents.place(KIND, HISTORY), store.documents.read(KIND, HISTORY)
    lines = content[: _complete(content)].splitlines()
    details: list[tuple[HistoryEvent, str]] = []
    for number, line in enumerate(lines, start=1):
        event = model_in(line, f"{log}:{number}", HistoryEvent, "event", _ADVICE)
        if event.after_sha256 != (details[-1][1] if details else _sha256(b"")):
            raise RefusedError(f"{log}:{number}: a line before this one was changed or is missing. {_ADVICE}")
        if store.signing is not None and is_signed:
            content = json.loads(line)
            signature = content.pop("signature", None)
            if problem := store.signing.problem_of(signature, HISTORY, event=content):
                raise RefusedError(f"{log}:{number}: {problem}. {_SIGNED}")
        details.append((event, _sha256(line)))
    return details


def _complete(content: bytes) -> int:
    """Count the bytes of complete lines; a last line counts as complete if only its line end is missing."""
    end = content.rfind(b"\n") + 1
    try:
        HistoryEvent.model_validate_json(content[end:])
    except ValidationError as error:
        return end if newer_than_known(error) is None else len(content)
    return len(content)


def _sha256(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
