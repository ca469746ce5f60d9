"""A workspace to records, with an account of everything that was seen."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.extract.batches import in_batches
from mens_pipeline.corpus.extract.checkout import commit_of
from mens_pipeline.corpus.extract.docs import extract_docs
from mens_pipeline.corpus.extract.file_outcome import FileOutcome
from mens_pipeline.corpus.extract.includes import has_include
from mens_pipeline.corpus.extract.programs import extract_vox
from mens_pipeline.corpus.extract.source_file import SourceFile
from mens_pipeline.corpus.extract.source_roots import SourceRoots, find_source_roots
from mens_pipeline.corpus.extract.sources import PAGE_SUFFIXES, VOX_SUFFIXES, files_below, is_out_of_place, shown_name
from mens_pipeline.corpus.schema.drops import Drop, DropReason, Unit
from mens_pipeline.corpus.schema.records import ExtractedRecord, SourceKind
from mens_pipeline.errors import SourceNotFoundError
from mens_pipeline.storage.files import read_regular

MAX_FILE_BYTES: Final = 1_048_576
"""A program or page above this size is no example."""

_UNIT_OF: Final = {SourceKind.DOC_BLOCK: Unit.BLOCK, SourceKind.DOC_SECTION: Unit.SECTION}


def extract_workspace(
    root: Path,
    commit: str | None = None,
    known: Callable[[SourceFile], FileOutcome | None] = lambda _file: None,
    workers: int = 1,
    workspace: Path | None = None,
) -> Iterator[FileOutcome]:
    """Extract all programs and pages below a folder, in the order of their paths.

    `known` gives what a file gave before, if it is known to give the same again; the outcomes do not depend on the
    number of `workers`. Paths are relative to `workspace`, which includes are resolved in; None for `root` itself.

    Raises:
        SourceNotFoundError: `root` is no folder.
        ConfigurationError: `examples.ssot.v1.yaml` does not hold together.
    """
    if not root.is_dir():
        raise SourceNotFoundError(f"{root}: no such folder. Name a Vox workspace.")
    root = root.resolve()
    roots = find_source_roots(root)
    place = workspace.resolve() if workspace is not None else root
    files = _items(root, place, roots, commit, known)
    return in_batches(files, partial(_extract_files, root=place, roots=roots), workers)


def _items(
    root: Path,
    workspace: Path,
    roots: SourceRoots,
    commit: str | None,
    known: Callable[[SourceFile], FileOutcome | None],
) -> Iterator[tuple[tuple[Unit, SourceFile] | None, FileOutcome | None, int]]:
    for unit, suffixes in ((Unit.VOX_FILE, VOX_SUFFIXES), (Unit.PAGE, PAGE_SUFFIXES)):
        for path in files_below(root, suffixes):
            file = read_source(path, workspace, unit, roots, commit)
            if isinstance(file, Drop):
                yield None, FileOutcome(file.path, None, (), {}, (file,)), 0
                continue
            outcome = known(file)
            yield (unit, file) if outcome is None else None, outcome, len(file.data)


def _extract_files(jobs: list[tuple[Unit, SourceFile]], root: Path, roots: SourceRoots) -> list[FileOutcome]:
    return [_program(file) if unit is Unit.VOX_FILE else _page(file, root, roots) for unit, file in jobs]


def _program(file: SourceFile) -> FileOutcome:
    found = extract_vox(file)
    if isinstance(found, Drop):
        return FileOutcome(file.path, file.blob, (), {}, (found,))
    return FileOutcome(file.path, file.blob, _lines(found), {Unit.VOX_FILE: 1}, ())


def _page(file: SourceFile, root: Path, roots: SourceRoots) -> FileOutcome:
    stands_alone = not has_include(file.data)
    found = extract_docs(file, root, lambda path: not roots.is_negative(path))
    if isinstance(found, Drop):
        return FileOutcome(file.path, file.blob, (), {}, (found,), stands_alone)
    kept = Counter({Unit.PAGE: 1})
    kept.update(_UNIT_OF[record.source.kind] for record in found.records)
    return FileOutcome(file.path, file.blob, _lines(found.records), dict(kept), found.drops, stands_alone)


def _lines(records: tuple[ExtractedRecord, ...]) -> tuple[str, ...]:
    return tuple(record.model_dump_json() for record in records)


def read_source(path: Path, root: Path, unit: Unit, roots: SourceRoots, commit: str | None) -> SourceFile | Drop:
    """Read a file, or return a drop with the reason why it is not read."""
    name = shown_name(path, root)
    if is_out_of_place(path):
        return Drop(unit, name, 1, DropReason.LINK, "a symbolic link, a pipe or a device")
    if name != path.relative_to(root).as_posix():
        return Drop(unit, name, 1, DropReason.NOT_TEXT, "a name that is not UTF-8")
    try:
        if roots.is_negative(path):
            return Drop(unit, name, 1, DropReason.NEGATIVE_ROOT, "below a negative root")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            return Drop(unit, name, 1, DropReason.TOO_LARGE, f"{size} bytes, more than {MAX_FILE_BYTES}")
        data = read_regular(path, MAX_FILE_BYTES, follow=False)
    except OSError as error:
        return Drop(unit, name, 1, DropReason.UNREADABLE, error.strerror or type(error).__name__)
    if b"\0" in data:
        return Drop(unit, name, 1, DropReason.NOT_TEXT, "a NUL byte")
    return SourceFile(name, data, commit, roots.is_golden(path))


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
