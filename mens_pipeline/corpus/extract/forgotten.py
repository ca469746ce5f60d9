"""Withdrawn files, listed in `config/forgotten.yaml`: they are used for neither training nor evaluation."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

import yaml
from pydantic import Field, RootModel, field_validator, model_validator

from mens_pipeline.corpus.extract.licences import LicencePolicy, refuse_unknown_ids
from mens_pipeline.storage.validation import Strict
from mens_pipeline.storage.yaml_file import load_model

FORGOTTEN: Final = "forgotten.yaml"
"""The list, next to pipeline.yaml."""

NUM_DIGITS: Final = 16
"""Fewest hexadecimal digits of a SHA-256 in the list."""


class Forgotten(Strict):
    """A withdrawn file or folder, or all files under a licence."""

    path: str | None = Field(
        default=None, min_length=1, description="A file or folder of the workspace, relative to it, with `/`."
    )
    sha256: tuple[str, ...] = Field(
        default=(),
        description="First digits of the SHA-256 of each of its contents; copies elsewhere are also kept out.",
    )
    licence: str | None = Field(default=None, description="An SPDX id, as in `licences.deny`, in place of a path.")
    reason: str = Field(default="", exclude=True, description="Why, for people.")

    @model_validator(mode="after")
    def _is_one_thing(self) -> "Forgotten":
        if (self.path is None) == (self.licence is None):
            raise ValueError("an entry needs either `path` or `licence`")
        refuse_unknown_ids(() if self.licence is None else (self.licence,))
        return self

    @field_validator("path")
    @classmethod
    def _is_relative(cls, path: str | None) -> str | None:
        pure = PurePosixPath(path or "x")
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise ValueError(f"{path!r} is not a path below the workspace. Write it as `mens lineage` shows it")
        return path and str(pure)

    @field_validator("sha256")
    @classmethod
    def _are_long(cls, digests: tuple[str, ...]) -> tuple[str, ...]:
        for digest in digests:
            if len(digest) < NUM_DIGITS or set(digest) - set("0123456789abcdef"):
                raise ValueError(f"{digest!r}: expected {NUM_DIGITS} to 64 hexadecimal digits, in quotes")
        return digests

    def holds(self, path: str, sha256: str) -> bool:
        """Return whether a file is this one, is in this folder, or has one of its contents."""
        if self.path is None:
            return False
        return PurePosixPath(path).is_relative_to(self.path) or sha256.startswith(self.sha256)

    def format(self) -> str:
        """Format it as an entry of the list; its reason may hold half characters."""
        reason = {"reason": self.reason.encode("utf-8", "backslashreplace").decode()} if self.reason else {}
        return str(yaml.safe_dump([self.model_dump(exclude_none=True) | reason], sort_keys=False))


class _List(RootModel[tuple[Forgotten, ...]]):
    @model_validator(mode="before")
    @classmethod
    def _may_be_empty(cls, content: object) -> object:
        return () if content is None else content


def load_forgotten(path: Path) -> tuple[Forgotten, ...]:
    """Read the list, empty without a file; raise a `ConfigurationError` that lists all mistakes."""
    return load_model(path, _List).root if path.exists() else ()


class SourcePolicy(LicencePolicy):
    """Rules that keep files of the workspace out of training."""

    forgotten: tuple[Forgotten, ...] = Field(default=(), exclude_if=lambda entries: not entries)

    @classmethod
    def of(cls, forgotten: Iterable[Forgotten], deny: tuple[str, ...] = ()) -> "SourcePolicy":
        """Combine the list with denied licences."""
        entries = tuple(forgotten)
        denied = (entry.licence for entry in entries if entry.licence is not None)
        return cls(deny=(*deny, *denied), forgotten=tuple(entry for entry in entries if entry.path is not None))

    def forgets(self, path: str, sha256: str) -> bool:
        """Return whether a file was withdrawn, by its path below the workspace and its SHA-256."""
        return any(entry.holds(path, sha256) for entry in self.forgotten)

    def refuses(self, path: str, sha256: str, licence: str | None) -> bool:
        """Return whether a file was withdrawn or its licence is denied; a licence of None was never recorded."""
        return self.forgets(path, sha256) or (licence is not None and self.denies(licence))
