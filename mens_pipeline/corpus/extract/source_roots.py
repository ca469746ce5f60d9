"""Folders of a workspace that never train, and those that judge: `examples.ssot.v1.yaml`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, model_validator

from mens_pipeline.corpus.extract.sources import ROOTS_FILE, VOX_SUFFIXES
from mens_pipeline.errors import ConfigurationError, did_you_mean
from mens_pipeline.storage.yaml_file import load_model

_EXAMPLES: Final = "examples"
"""Where upstream keeps the file; its roots are relative to the folder above."""

_DECIDES: Final = {"negativ": "negative_roots", "golden": "golden_roots"}
"""Part of a misspelt key -> the key that was probably meant."""
_KEYS: Final = frozenset({*_DECIDES.values(), "schema_version", "sandbox_roots", "doc_roots"})


class _Roots(BaseModel):
    """The file. Its roots of sandboxes and pages decide nothing.

    Other keys may stand there, but none that may be meant for one that decides: excluded folders would train.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    negative_roots: tuple[str, ...] = ()
    golden_roots: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _no_near_miss(cls, values: Any) -> Any:
        for key in values if isinstance(values, dict) else ():
            name = str(key)
            for mark, meant in _DECIDES.items() if name not in _KEYS else ():
                if mark in name.lower() or did_you_mean(name, [meant]):
                    raise ValueError(f"{name}: nothing reads this. Did you mean `{meant}`?")
        return values


@dataclass(frozen=True, slots=True)
class SourceRoots:
    """The roots of a workspace as absolute folders; the workspace is None when no file governs.

    Programs below `negative` never train; those below `golden` are golden, and all are where none is given.
    """

    workspace: Path | None = None
    negative: tuple[Path, ...] = ()
    golden: tuple[Path, ...] = ()

    def fingerprint(self) -> str:
        """Return the roots that decide as text, relative to the workspace and thus the same on every machine."""
        if self.workspace is None:
            return "none"
        kinds = ((os.path.relpath(root, self.workspace) for root in roots) for roots in (self.negative, self.golden))
        return "; golden ".join(" ".join(sorted(names)) for names in kinds)

    def is_negative(self, path: Path) -> bool:
        """Return whether a file lies below a negative root."""
        return _is_below(path, self.negative)

    def is_golden(self, path: Path) -> bool:
        """Return whether a file may judge: a page, or a program that is below a golden root and no negative one."""
        if not path.name.endswith(VOX_SUFFIXES):
            return True
        return not self.is_negative(path) and (not self.golden or _is_below(path, self.golden))


def _is_below(path: Path, roots: tuple[Path, ...]) -> bool:
    resolved = path.resolve()
    return any(resolved.is_relative_to(root) for root in roots)


def find_source_roots(folder: Path) -> SourceRoots:
    """Find the roots that govern a folder: from its own file, its `examples/`, or the nearest of its parents.

    Raises:
        ConfigurationError: The file that governs the folder is no YAML or does not fit, or is a link.
    """
    start = folder.resolve()
    for place in (start, *start.parents):
        for candidate in (place / ROOTS_FILE, place / _EXAMPLES / ROOTS_FILE):
            if candidate.is_file():
                folder = candidate.parent
                return _load(candidate, folder.parent if folder.name == _EXAMPLES else folder)
    return SourceRoots()


def _load(path: Path, workspace: Path) -> SourceRoots:
    if path.is_symlink():
        raise ConfigurationError(f"{path}: a link, which may lead anywhere. Put the file itself in its place.")
    roots = load_model(path, _Roots)

    def resolve(name: str, root: str) -> Path:
        try:
            os.fsencode(root)
            return (workspace / root).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links; a NUL or half a character
            advice = "Name a folder relative to the workspace."
            raise ConfigurationError(f"{path}: {name}: {root!r} is no path. {advice}") from error

    negative, golden = (tuple(resolve(name, root) for root in getattr(roots, name)) for name in _DECIDES.values())
    return SourceRoots(workspace, negative, golden)
