"""Records of a file that another extraction wrote and that still hold, so that folders can be extracted one by one."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from mens_pipeline.corpus.extract.source_roots import SourceRoots
from mens_pipeline.corpus.schema.reading import read_record_lines


class LeaveReason(StrEnum):
    """Why a record of another folder does not stay."""

    CHANGED = "changed"
    """Its file is not as it was."""
    GONE = "gone"
    NEGATIVE_ROOT = "negative_root"
    GOLDEN_ROOT = "golden_root"
    """It was golden and is not any more, or the other way round."""


@dataclass
class CarriedRecords:
    """The records of other folders.

    `lines` are those that stay, without their ends; `left` counts the others by reason.
    """

    lines: list[str] = field(default_factory=list)
    left: Counter[LeaveReason] = field(default_factory=Counter)

    def account(self) -> dict[str, Any]:
        """Return the counts in JSON types, most frequent first."""
        return {"stayed": len(self.lines), "left": {str(reason): count for reason, count in self.left.most_common()}}


def carried_records(records: Path, folder: Path, workspace: Path, roots: SourceRoots) -> CarriedRecords:
    """Read the records of other folders of the workspace; those of files that are gone or changed are left out.

    `records`, what earlier extractions wrote, need not be there; those of `folder` are made anew, and are neither kept
    nor counted.

    Raises:
        SourceNotFoundError: The file is there and cannot be read.
        RefusedError: A line of it is no record, and would be lost.
    """
    folder, workspace = folder.resolve(), workspace.resolve()

    @cache
    def found(name: str) -> str | LeaveReason:
        path = workspace / name
        if roots.is_negative(path):
            return LeaveReason.NEGATIVE_ROOT
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else LeaveReason.GONE

    carried = CarriedRecords()
    if not records.exists():
        return carried
    for line, record in read_record_lines(records):
        source = record.source
        if (workspace / source.path).is_relative_to(folder):
            continue
        blob = found(source.path)
        if blob == source.blob and source.golden != roots.is_golden(workspace / source.path):
            carried.left[LeaveReason.GOLDEN_ROOT] += 1
        elif blob == source.blob:
            carried.lines.append(line)
        else:
            carried.left[blob if isinstance(blob, LeaveReason) else LeaveReason.CHANGED] += 1
    return carried
