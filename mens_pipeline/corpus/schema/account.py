"""Count what was seen, kept, and dropped by reason."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from mens_pipeline.corpus.schema.reasons import DropReason
from mens_pipeline.errors import RefusedError

Reason = TypeVar("Reason", bound=StrEnum)
Name = TypeVar("Name", bound=str)
Row = TypeVar("Row")


@dataclass(kw_only=True)
class Account(Generic[Reason]):
    """Counts that must add up: everything seen was kept, or dropped for a reason."""

    seen: int = 0
    kept: int = 0
    dropped: Counter[Reason] = field(default_factory=Counter)

    @property
    def num_lost(self) -> int:
        """Items that were neither kept nor dropped; anything but 0 is a defect."""
        return count_lost(self.seen, self.kept, self.dropped)

    def check(self) -> None:
        """Assert that the counts add up."""
        lost = self.num_lost
        assert lost == 0, f"{lost} of {self.seen} were neither kept nor dropped"  # noqa: S101 - an internal invariant


def at_least_one(rows: Iterable[Row], account: Account[Reason], where: object, advice: str) -> Iterator[Row]:
    """Yield rows, then raise `RefusedError` if no row was kept, so that the file that they would replace stays."""
    yield from rows
    if not account.kept:
        dropped = ", ".join(f"{count} {reason}" for reason, count in most_frequent(account.dropped).items() if count)
        raise RefusedError(f"{where}: none of {account.seen} rows was kept ({dropped or 'it is empty'}). {advice}")


def count_lost(seen: int, kept: int, dropped: Mapping[Name, int]) -> int:
    """Return how many items were neither kept nor dropped for a reason."""
    return seen - kept - sum(dropped.values())


def counts_of(kinds: type[Reason], counts: Mapping[Reason, int]) -> dict[str, int]:
    """Return the counts of all kinds in JSON types, with 0 for those that did not occur."""
    return {str(kind): counts.get(kind, 0) for kind in kinds}


def most_frequent(counts: Mapping[Name, int]) -> dict[str, int]:
    """Return counts in JSON types, sorted by count and then by name."""
    return {str(name): count for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))}


class Unit(StrEnum):
    """Units that an extraction counts."""

    VOX_FILE = "vox_file"
    PAGE = "page"
    OTHER_FORMAT = "other_format"
    """A file with the suffix of a program or page that is not text: a voxel model, sound."""
    SECTION = "section"  # the prose below a heading of an eligible page
    BLOCK = "block"  # a fenced block of an eligible page that says it is Vox


@dataclass(frozen=True, slots=True)
class Drop:
    """A unit that an extraction drops; `path` is relative to the workspace, `line` is its first line, from 1."""

    unit: Unit
    path: str
    line: int
    reason: DropReason
    detail: str


def share_text(part: int, whole: int) -> str:
    """Format a count with its share: `37/40 (92.5 %)`; without the share if `whole` is 0."""
    return f"{part}/{whole} ({100 * part / whole:.1f} %)" if whole else f"{part}/{whole}"
