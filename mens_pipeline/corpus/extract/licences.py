"""Licences of source files, and the policy that keeps files with some licences from training.

A file has the licence in its own SPDX line, or else in the nearest licence file above it.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field, field_validator

from mens_pipeline.corpus.extract.git import find_checkout, is_checkout
from mens_pipeline.corpus.schema.file_text import decode_text
from mens_pipeline.corpus.schema.records import UNKNOWN_LICENCE as UNKNOWN
from mens_pipeline.errors import did_you_mean
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.validation import Strict

if TYPE_CHECKING:
    from boolean import Expression

LICENCE_FILES: Final = (
    *(f"{name}{suffix}" for name in ("LICENSE", "LICENCE", "COPYING") for suffix in ("", ".txt", ".md")),
    *(f"LICENSE-{name}" for name in ("APACHE", "MIT")),
)
"""Names of licence files; several that are named for a licence offer a choice."""

_LARGEST: Final = 131_072  # bytes of a licence file; larger ones are not read
_NUM_HEAD_BYTES: Final = 4_096  # bytes at the start of a file that may contain an SPDX line
_OPENERS: Final = frozenset(("", "//", "#", "<!--", "*", "/*"))
"""Comment openers that may precede the tag."""
_EXPRESSION: Final = re.compile(r"[A-Za-z0-9(][A-Za-z0-9.+:() -]{0,199}")
_WORD: Final = re.compile(r"[A-Za-z0-9.+:-]+")
_NOT_WORDS: Final = re.compile(r"[^a-z0-9.]+")
_REDISTRIBUTION: Final = "redistribution and use in source and binary forms with or without modification are permitted"
_PASSAGES: Final = {
    "AGPL-3.0": "gnu affero general public license version 3 19 november 2007",
    "Apache-2.0": "apache license version 2.0",
    "GPL-2.0": "gnu general public license version 2 june 1991",
    "GPL-3.0": "gnu general public license version 3 29 june 2007",
    "LGPL-2.1": "gnu lesser general public license version 2.1 february 1999",
    "LGPL-3.0": "gnu lesser general public license version 3 29 june 2007",
    "MIT": "the above copyright notice and this permission notice shall be included in all copies or substantial",
    "MPL-2.0": "mozilla public license version 2.0",
}
"""SPDX id -> a passage that only this licence contains, as lower-case words."""

_VERSIONS: Final = re.compile(r"(?:-only|-or-later|\+)$")


class LicencePolicy(Strict):
    """Licences to keep out of training."""

    deny: tuple[str, ...] = Field(
        default=(),
        description="SPDX ids, with `*` for any characters; `unknown` for a file without a known "
        "licence. An id covers all its forms: `GPL-3.0` also denies `GPL-3.0-or-later`.",
    )

    @field_validator("deny")
    @classmethod
    def _are_known(cls, deny: tuple[str, ...]) -> tuple[str, ...]:
        refuse_unknown_ids(deny)
        return deny

    def denies(self, licence: str) -> bool:
        """Return whether a licence is denied: with `OR`, if every part is; with `AND`, if any part is."""
        return bool(self.deny) and (self._denies_id(UNKNOWN) if licence == UNKNOWN else self._denies(_parse(licence)))

    def _denies(self, parsed: "Expression") -> bool:
        parts = [self._denies(part) for part in parsed.args]
        if not parts:
            return self._denies_id(getattr(parsed, "license_symbol", parsed).key)
        return all(parts) if parsed.operator.strip() == "OR" else any(parts)

    def _denies_id(self, licence: str) -> bool:
        return any(fnmatchcase(_without_version(licence), _without_version(name)) for name in self.deny)


def refuse_unknown_ids(names: Iterable[str]) -> None:
    """Raise ValueError for a name that is neither an SPDX id, nor a pattern, nor `unknown`."""
    for name in names:
        if "*" not in name and name != UNKNOWN and _spdx_id(name) is None:
            advice = did_you_mean(name, [UNKNOWN, *_PASSAGES]) or f"Write an SPDX id, or `{UNKNOWN}`"
            raise ValueError(f"{name!r} is not an SPDX id. {advice}")


def _without_version(licence: str) -> str:
    return _VERSIONS.sub("", licence).casefold()


@dataclass
class Licences:
    """The licences of the files of a workspace.

    Licence files are looked up from a file's folder up to the root of its git checkout. Folders are cached; create a
    new object if files may have changed.
    """

    root: Path
    _seen: dict[Path, tuple[str | None, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._top = find_checkout(self.root) or self.root.resolve()

    def find_licence(self, path: Path, data: bytes) -> str:
        """Return the licence of a file with this content, as an SPDX expression; `unknown` without one."""
        stated = _find_stated(decode_text(data[:_NUM_HEAD_BYTES], "replace"))
        if stated is not None:
            return stated
        for folder in path.parents:
            if folder not in self._seen:
                self._seen[folder] = self._licence_in(folder), folder == self._top or is_checkout(folder)
            found, is_top = self._seen[folder]
            if found is not None or is_top:
                return found or UNKNOWN
        return UNKNOWN

    def _licence_in(self, folder: Path) -> str | None:
        below = self.root if folder.is_relative_to(self.root) else folder
        found = {path.name: _read_licence(path, below) for path in _licence_files(folder)}
        whole = {licence for name, licence in found.items() if not name.startswith("LICENSE-")}
        licences = sorted(whole or found.values())
        if len(licences) <= 1:
            return next(iter(licences), None)
        return UNKNOWN if UNKNOWN in licences else (" AND " if whole else " OR ").join(licences)


def files_above(root: Path) -> Iterator[Path]:
    """Yield the licences and attributes outside a workspace that may apply to it, the nearest first."""
    folder = root.resolve()
    top = find_checkout(root) or folder
    while folder != top:
        folder = folder.parent
        yield from _licence_files(folder, (*LICENCE_FILES, ".gitattributes"))
    yield from _licence_files(top, (".git/info/attributes",))


def _licence_files(folder: Path, names: Iterable[str] = LICENCE_FILES) -> list[Path]:
    return [path for name in names if (path := folder / name).is_file() or path.is_symlink()]


def _read_licence(path: Path, below: Path) -> str:
    try:
        text = decode_text(read_regular(path, _LARGEST, below=below), "replace")
    except OSError:  # a link, which may lead anywhere; or larger than any licence
        return UNKNOWN
    words = _NOT_WORDS.sub(" ", text.lower())
    found = [name for name, passage in _PASSAGES.items() if passage in words]
    if _REDISTRIBUTION in words:
        found.append("BSD-3-Clause" if "neither the name of" in words else "BSD-2-Clause")
    return _find_stated(text) or " AND ".join(sorted(found)) or UNKNOWN


def _find_stated(text: str) -> str | None:
    lines: list[str] = []
    for line in text.split("\n"):
        opener, tag, rest = line.partition("SPDX-License-Identifier:")
        expression = rest.strip().removesuffix("-->").removesuffix("*/").rstrip()
        if tag and opener.strip() in _OPENERS and _EXPRESSION.fullmatch(expression):
            lines.append(expression)
    stated = list(dict.fromkeys(map(_normalise, lines)))
    if len(stated) < 2:  # noqa: PLR2004 - one line says it all
        return next(iter(stated), None)
    return UNKNOWN if UNKNOWN in stated else " AND ".join(f"({line})" if " OR " in line else line for line in stated)


def _normalise(expression: str) -> str:
    from license_expression import ExpressionError, Licensing  # noqa: PLC0415 - few files state a licence

    try:
        parsed = _parse(expression)
    except (ExpressionError, IndexError):  # the latter for empty brackets
        return UNKNOWN
    if not all(_spdx_id(key) for key in Licensing().license_keys(parsed)):
        return UNKNOWN
    return _WORD.sub(lambda word: _spdx_id(word[0]) or word[0], parsed.render())


def _parse(expression: str) -> "Expression":
    from license_expression import Licensing  # noqa: PLC0415 - few files state a licence

    return Licensing().parse(expression)


def _spdx_id(name: str) -> str | None:
    from cyclonedx.spdx import fixup_id  # noqa: PLC0415 - reads the list of all ids

    if name.startswith(("LicenseRef-", "DocumentRef-")):
        return name
    later = "+" if name.endswith("+") else ""
    found: str | None = fixup_id(name.removesuffix("+"))
    return found and found + later
