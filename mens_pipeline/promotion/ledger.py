"""Ledger of evaluations by exam: each further attempt needs more confidence."""

from collections.abc import Iterable
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.promotion.history import history_of, withdrawn
from mens_pipeline.storage.store import ArtifactStore

FOLDER: Final = "eval_results"
LEDGER: Final = "ledger.jsonl"

_SAME_SHARE: Final = 0.5
"""Share of the files of the smaller of two exams from which on they are one exam: a workspace that grows, or an exam
of a part of the files, does not begin to count anew."""


class Try(BaseModel):
    """Attempt: an adapter with its decoding options, on the source files of an exam."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    adapter_sha256: str = Field(min_length=64, max_length=64)
    decoding: Decoding
    first_heldout_tasks: int = Field(ge=1, description="Held-out requests of the first round.")
    max_rounds: int = Field(ge=1)
    files: tuple[str, ...] = Field(description="The source files of all held-out requests, in order.")

    def is_of_same_exam(self, other: Self) -> bool:
        """Return whether two tries are of exams that share half of the files of the smaller one.

        Args:
            other: Another try.
        """
        own, theirs = set(self.files), set(other.files)
        return len(own & theirs) >= _SAME_SHARE * min(len(own), len(theirs))

    def is_same(self, other: Self) -> bool:
        """Return whether nothing was left to chance between two tries: their answers are the same ones.

        Args:
            other: Another try.
        """
        unimportant = {"batch_tokens"}
        return (
            self.adapter_sha256 == other.adapter_sha256
            and self.decoding.model_dump(exclude=unimportant) == other.decoding.model_dump(exclude=unimportant)
            and (self.first_heldout_tasks, self.max_rounds) == (other.first_heldout_tasks, other.max_rounds)
            and self.is_of_same_exam(other)
        )


class LedgerEntry(Try):
    """A line of `ledger.jsonl`."""

    timestamp_unix: int = Field(ge=0)
    attempt: int = Field(ge=1, description="Tries on this exam since it last promoted an adapter, this one included.")


def record_try(store: ArtifactStore, tried: Try, *, now: int) -> int:
    """Count a try, once.

    Args:
        store: Where evaluations are kept.
        tried: What is tried.
        now: Seconds since 1970.

    Returns:
        The number of this try on its exam since it last promoted an adapter that is still trusted, from 1; that of the
        first time if the very same was tried before.

    Raises:
        RefusedError: A line of the ledger is none.
    """
    trusted = {e.adapter_sha256 for e in history_of(store) if e.action == "promote"} - withdrawn(store)
    place = store.documents.place(FOLDER, LEDGER)

    def counted(content: bytes) -> bytes:
        complete, entries = _entries(content, place)
        if any(tried.is_same(entry) for entry in entries):
            return complete
        attempt = _attempt([entry for entry in entries if tried.is_of_same_exam(entry)], trusted)
        entry = LedgerEntry(**tried.model_dump(), timestamp_unix=now, attempt=attempt)
        return complete + entry.model_dump_json().encode() + b"\n"

    store.documents.amend(FOLDER, LEDGER, counted)
    entries = _entries(store.documents.read(FOLDER, LEDGER), place)[1]
    return next(entry.attempt for entry in entries if tried.is_same(entry))


def _attempt(entries: Iterable[LedgerEntry], promoted: set[str]) -> int:
    """Return the number of the next attempt; counting begins anew after the first one of a promoted adapter."""
    attempt, seen = 1, set()
    for entry in entries:
        is_first = entry.adapter_sha256 not in seen
        attempt = 1 if is_first and entry.adapter_sha256 in promoted else attempt + 1
        seen.add(entry.adapter_sha256)
    return attempt


def _entries(content: bytes, place: str) -> tuple[bytes, list[LedgerEntry]]:
    """Read the entries of a ledger, without a last line that was cut off, by a full disk or a lost process."""
    complete = content[: content.rfind(b"\n") + 1]
    try:
        return complete, [LedgerEntry.model_validate_json(line) for line in complete.splitlines()]
    except ValidationError as error:
        advice = "Restore the file from a backup: without it nobody knows how often adapters were tried."
        raise RefusedError(f"{place}: a line is no entry ({error.error_count()} mistakes). {advice}") from error
