"""Counts of rows seen, kept, and dropped by reason."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Unit(StrEnum):
    """Units that are counted."""

    VOX_FILE = "vox_file"
    PAGE = "page"
    SECTION = "section"
    """The prose below a heading of an eligible page."""
    BLOCK = "block"
    """A fenced block of an eligible page that says it is Vox."""


class DropReason(StrEnum):
    """Why something that was seen does not train."""

    NEGATIVE_ROOT = "negative_root"
    NOT_OPTED_IN = "not_opted_in"
    """A page without `training_eligible: true`."""
    OPTED_OUT = "opted_out"
    """`training_eligible: false`."""
    DEPRECATED = "deprecated"
    SKIP_MARKER = "skip_marker"
    BAD_FRONTMATTER = "bad_frontmatter"
    LINK = "link"
    """A symbolic link, whose file is read where it lies; or a pipe or device, which is no file."""
    TOO_LARGE = "too_large"
    NOT_TEXT = "not_text"
    UNREADABLE = "unreadable"
    REJECTED = "rejected"
    """The front end does not accept it."""
    NO_DECLARATION = "no_declaration"
    TOO_SHORT = "too_short"
    """A section with hardly any prose."""
    BAD_INCLUDE = "bad_include"
    """An include that is missing, lies outside the workspace, or names no anchor of its file."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Something that does not train.

    `path` is relative to the workspace; `line` is its first, from 1; `detail` is for a person.
    """

    unit: Unit
    path: str
    line: int
    reason: DropReason
    detail: str


@dataclass
class Tally:
    """Counts that must add up: seen is kept plus dropped, for each unit."""

    seen: Counter[Unit] = field(default_factory=Counter)
    kept: Counter[Unit] = field(default_factory=Counter)
    dropped: Counter[tuple[Unit, DropReason]] = field(default_factory=Counter)

    def keep(self, unit: Unit, count: int = 1) -> None:
        """Count something that trains."""
        self.seen[unit] += count
        self.kept[unit] += count

    def drop(self, drop: Drop) -> None:
        """Count something that does not."""
        self.seen[drop.unit] += 1
        self.dropped[drop.unit, drop.reason] += 1

    def reasons(self, unit: Unit) -> dict[str, int]:
        """Return reason -> number for one unit, most frequent first."""
        counts = {str(reason): count for (kind, reason), count in self.dropped.items() if kind is unit}
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def adds_up(self) -> bool:
        """Return whether nothing disappeared."""
        return all(self.seen[unit] == self.kept[unit] + sum(self.reasons(unit).values()) for unit in Unit)


def account(tally: Tally, num_records: int) -> dict[str, Any]:
    """Return the counts of an extraction in JSON types."""
    units = {
        str(unit): {"seen": tally.seen[unit], "kept": tally.kept[unit], "dropped": tally.reasons(unit)} for unit in Unit
    }
    return {"num_records": num_records, "units": units}


def drop_fields(drop: Drop) -> dict[str, Any]:
    """Return a drop in JSON types."""
    return asdict(drop)
