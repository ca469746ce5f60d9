"""The records of folders of pages that may lie inside one another."""

from collections.abc import Iterable
from pathlib import Path

from mens_pipeline.corpus.extract.checkout import commit_of
from mens_pipeline.corpus.extract.docs import extract_docs
from mens_pipeline.corpus.extract.source_roots import find_source_roots
from mens_pipeline.corpus.extract.sources import PAGE_SUFFIXES, files_below
from mens_pipeline.corpus.extract.workspace import read_source
from mens_pipeline.corpus.schema.drops import Drop, Unit
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.errors import SourceNotFoundError


def page_records(folders: Iterable[Path], known_blobs: Iterable[str]) -> list[ExtractedRecord]:
    """Extract the records of all eligible pages below some folders; each page counts once.

    Includes are resolved inside the workspace that governs a folder: that of its `examples.ssot.v1.yaml`, or the folder
    itself. Pages of `known_blobs` have their records already.

    Raises:
        SourceNotFoundError: One of them is no folder.
    """
    seen = set(known_blobs)
    records: list[ExtractedRecord] = []
    for folder in folders:
        if not folder.is_dir():
            raise SourceNotFoundError(f"{folder}: no such folder. Name a folder of pages.")
        roots = find_source_roots(folder)
        workspace = roots.workspace or folder.resolve()
        commit = commit_of(workspace)
        for path in files_below(folder.resolve(), PAGE_SUFFIXES):
            page = read_source(path, workspace, Unit.PAGE, roots, commit)
            if isinstance(page, Drop) or page.blob in seen:
                continue
            seen.add(page.blob)
            found = extract_docs(page, workspace, lambda file: not roots.is_negative(file))  # noqa: B023 - called at once
            if not isinstance(found, Drop):
                records.extend(found.records)
    return records
