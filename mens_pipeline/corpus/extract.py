"""A workspace to records, with an account of everything that was seen."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.drops import Drop, DropReason, Tally, Unit
from mens_pipeline.corpus.extract_docs import extract_docs
from mens_pipeline.corpus.extract_vox import extract_vox
from mens_pipeline.corpus.records import ExtractedRecord, SourceKind
from mens_pipeline.corpus.source_file import SourceFile
from mens_pipeline.corpus.source_roots import SourceRoots, find_source_roots
from mens_pipeline.corpus.sources import PAGE_SUFFIXES, VOX_SUFFIXES, files_below
from mens_pipeline.errors import SourceNotFoundError

MAX_FILE_BYTES: Final = 1_048_576
"""A program or page above this size is no example."""

_UNIT_OF: Final = {
    SourceKind.VOX_FILE: Unit.VOX_FILE,
    SourceKind.DOC_BLOCK: Unit.BLOCK,
    SourceKind.DOC_SECTION: Unit.SECTION,
}


def extract_workspace(
    root: Path, tally: Tally, on_drop: Callable[[Drop], None], commit: str | None = None
) -> Iterator[ExtractedRecord]:
    """The records of all programs and pages below a folder, in the order of their paths.

    Args:
        root: The workspace.
        tally: Counts everything that is seen; it adds up once all records have been taken.
        on_drop: Takes each thing that does not train.
        commit: Git commit of the workspace, where there is one.

    Raises:
        SourceNotFoundError: `root` is no folder.
        ConfigurationError: `examples.ssot.v1.yaml` does not hold together.
    """
    if not root.is_dir():
        raise SourceNotFoundError(f"{root}: no such folder. Name a Vox workspace.")
    root = root.resolve()
    roots = find_source_roots(root)

    def drop(dropped: Drop) -> None:
        tally.drop(dropped)
        on_drop(dropped)

    for path in files_below(root, VOX_SUFFIXES):
        file = read_source(path, root, Unit.VOX_FILE, roots, commit)
        found = file if isinstance(file, Drop) else extract_vox(file)
        if isinstance(found, Drop):
            drop(found)
        else:
            tally.keep(Unit.VOX_FILE)
            yield from found
    for path in files_below(root, PAGE_SUFFIXES):
        page = read_source(path, root, Unit.PAGE, roots, commit)
        given = page if isinstance(page, Drop) else extract_docs(page, root, lambda file: not roots.is_negative(file))
        if isinstance(given, Drop):
            drop(given)
            continue
        tally.keep(Unit.PAGE)
        for dropped in given.drops:
            drop(dropped)
        for record in given.records:
            tally.keep(_UNIT_OF[record.source.kind])
            yield record


def read_source(path: Path, root: Path, unit: Unit, roots: SourceRoots, commit: str | None) -> SourceFile | Drop:
    """The content of a file, or why it is not read.

    Args:
        path: The file.
        root: The workspace.
        unit: What it counts as.
        roots: The roots that govern it.
        commit: Git commit of the workspace, where there is one.
    """
    name = path.relative_to(root).as_posix()
    if path.is_symlink():
        return Drop(unit, name, 1, DropReason.LINK, "a symbolic link")
    if roots.is_negative(path):
        return Drop(unit, name, 1, DropReason.NEGATIVE_ROOT, "below a negative root")
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            return Drop(unit, name, 1, DropReason.TOO_LARGE, f"{size} bytes, more than {MAX_FILE_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        return Drop(unit, name, 1, DropReason.UNREADABLE, error.strerror or type(error).__name__)
    if b"\0" in data:
        return Drop(unit, name, 1, DropReason.NOT_TEXT, "a NUL byte")
    return SourceFile(name, data, commit)


def commit_of(root: Path) -> str | None:
    """The git commit that a folder is at; None outside a checkout or without git.

    Args:
        root: Any folder.
    """
    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607 - git is found where the user has it
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return result.stdout.strip() or None if result.returncode == 0 else None
