"""A stage: from parents and parameters to an artifact, made once for the same parents, parameters and code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.store import Artifact, ArtifactStore


@dataclass(frozen=True, slots=True)
class Stage:
    """A kind of artifact, and the code that decides what one holds.

    Attributes:
        kind: What is made: `extracted_corpus`.
        entries: The code, as `code_version` takes it; the module of the stage, or less where anew is dear.
        without: Modules that are of no account to it.
        by_content: Whether parents are on record alone, because the parameters hold hashes of what is taken from them:
            another parent with the same content makes nothing anew.
    """

    kind: str
    entries: tuple[str, ...]
    without: tuple[str, ...] = ()
    by_content: bool = False

    @property
    def code_version(self) -> str:
        """SHA-256 over the code, hexadecimal."""
        return code_version(*self.entries, without=self.without)

    def inputs(self, parents: Sequence[Artifact], params: Mapping[str, Any]) -> dict[str, Any]:
        """Return all that decides what an artifact holds."""
        keys = {} if self.by_content else {"parents": [parent.key for parent in parents]}
        return {**params, **keys, "code": self.code_version}

    def build(
        self,
        store: ArtifactStore,
        parents: Sequence[Artifact],
        params: Mapping[str, Any],
        write: Callable[[Path], dict[str, Any]],
        *,
        force: bool = False,
    ) -> tuple[Artifact, bool]:
        """Make the artifact of these parents and parameters, unless it is there and as it was written.

        The order of parents has a meaning. `write` fills a folder, and returns what the manifest shall say besides.

        Returns:
            The artifact, and whether it was reused.

        Raises:
            ConfigurationError: The store cannot be written.
        """
        return store.built(self.kind, self.inputs(parents, params), write, parents, anew=force)
