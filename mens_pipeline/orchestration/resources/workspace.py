"""The Vox workspace as a resource."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import dagster as dg

from mens_pipeline.corpus.extract.sources import shown_name, vox_files
from mens_pipeline.errors import SourceNotFoundError
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.files import read_regular

_MOST_BYTES: Final = 67_108_864
"""Of a program that is looked at; a larger one counts as one that cannot be read."""


class VoxWorkspace(dg.ConfigurableResource[None]):
    """The folder of Vox programs that the pipeline learns from.

    Attributes:
        root: The folder; empty means `MENS_SOURCE_ROOT`, or this repository's `data/`.
    """

    root: str = ""

    def folder(self) -> Path:
        """Return the folder as an absolute path.

        Raises:
            SourceNotFoundError: It is not there; a missing workspace is never an empty one.
        """
        folder = (Path(self.root) if self.root else load_settings().source_root).resolve()
        if not folder.is_dir():
            raise SourceNotFoundError(f"{folder}: no such folder. Set MENS_SOURCE_ROOT to a Vox workspace.")
        return folder

    def contents(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield relative path and bytes of each program; None for one that cannot be read."""
        folder = self.folder()
        for path in vox_files(folder):
            try:
                data = read_regular(path, _MOST_BYTES)
            except OSError:
                data = None
            yield shown_name(path, folder), data
