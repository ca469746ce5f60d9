"""Records of a file that another extraction wrote and that still hold, so that folders can be extracted one by one."""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from mens_pipeline.corpus.records import ExtractedRecord
from mens_pipeline.corpus.source_roots import SourceRoots


def carried_records(records: Path, folder: Path, workspace: Path, roots: SourceRoots) -> Iterator[str]:
    """The records of other folders of the workspace; those of files that are gone or have changed are left out.

    Args:
        records: What extractions before this one wrote; need not be there.
        folder: What is extracted now; its records are made anew.
        workspace: What the paths of records are relative to.
        roots: The roots that govern it.

    Yields:
        Lines as they stand, without their ends.
    """
    folder, workspace = folder.resolve(), workspace.resolve()

    @cache
    def blob_of(name: str) -> str | None:
        path = workspace / name
        if path.is_relative_to(folder) or not path.is_file() or roots.is_negative(path):
            return None
        return hashlib.sha256(path.read_bytes()).hexdigest()

    if not records.is_file():
        return
    with records.open("rb") as lines:
        for line in lines:
            try:
                source = ExtractedRecord.model_validate_json(line).source
            except ValidationError:
                continue
            if blob_of(source.path) == source.blob:
                yield line.decode().rstrip("\n")
