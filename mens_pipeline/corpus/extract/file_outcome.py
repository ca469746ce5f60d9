"""Results for one file of a workspace, as they pass between processes and into the index of a corpus."""

import json
from dataclasses import dataclass
from typing import Any

from mens_pipeline.corpus.schema.drops import Drop, DropReason, Tally, Unit


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """Records, drops and verdict of one file.

    Attributes:
        path: The file, relative to the workspace.
        blob: SHA-256 of its content, hexadecimal; None when it was not read.
        lines: Its records as JSON, one a line.
        kept: Unit -> how many of them train; the file itself is one.
        drops: What of it does not train, perhaps the file itself.
        stands_alone: Whether nothing but its own content decided this; false for a page that includes other files.
    """

    path: str
    blob: str | None
    lines: tuple[str, ...]
    kept: dict[Unit, int]
    drops: tuple[Drop, ...]
    stands_alone: bool = True

    def count(self, tally: Tally) -> None:
        """Add what was kept and what was dropped to a tally."""
        for unit, number in self.kept.items():
            tally.keep(unit, number)
        for drop in self.drops:
            tally.drop(drop)

    def account(self) -> dict[str, Any]:
        """Return all but the lines, in JSON types."""
        return {
            "path": self.path,
            "blob": self.blob,
            "kept": {str(unit): count for unit, count in self.kept.items()},
            "drops": [
                {"unit": str(d.unit), "line": d.line, "reason": str(d.reason), "detail": d.detail} for d in self.drops
            ],
            "stands_alone": self.stands_alone,
        }


def outcome_of(account: dict[str, Any], lines: tuple[str, ...]) -> FileOutcome:
    """Build an outcome from its account and its lines."""
    path = account["path"]
    return FileOutcome(
        path=path,
        blob=account["blob"],
        lines=lines,
        kept={Unit(unit): count for unit, count in account["kept"].items()},
        drops=tuple(
            Drop(Unit(drop["unit"]), path, drop["line"], DropReason(drop["reason"]), drop["detail"])
            for drop in account["drops"]
        ),
        stands_alone=account["stands_alone"],
    )


def with_commit(line: str, old: str | None, new: str | None) -> str:
    """Replace the commit in the source of a record's line."""
    # Inside a JSON string a quote is escaped, so the first match is the key of the source.
    return line if old == new else line.replace(f'"commit":{json.dumps(old)}', f'"commit":{json.dumps(new)}', 1)
