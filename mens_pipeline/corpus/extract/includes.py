"""Include directives of pages, resolved inside the workspace only."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mens_pipeline.storage.files import read_regular

_DIRECTIVE: Final = re.compile(r"^\s*\{\{#include\s+(?P<path>[^\s:}]+)(?::(?P<anchor>[A-Za-z0-9_-]+))?\s*\}\}\s*$")
_ANCHOR: Final = r"^\s*(?://|#)\s*ANCHOR{end}:\s*{name}\s*$"
MAX_INCLUDED_BYTES: Final = 1_048_576
"""Of a file that is included."""

MAX_INCLUDED_BY_PAGE: Final = 4 * MAX_INCLUDED_BYTES
"""Of all that the blocks of a page include: a line of twenty characters may ask for a file of a million."""


class IncludeError(Exception):
    """An include that cannot be resolved; never leaves this package."""


@dataclass
class Allowance:
    """Remaining allowance of a page for includes: bytes of the files that are read for it."""

    num_bytes: int = MAX_INCLUDED_BY_PAGE

    def spend(self, num_bytes: int) -> None:
        """Count a file.

        Raises:
            IncludeError: It is one too many.
        """
        self.num_bytes -= num_bytes
        if self.num_bytes < 0:
            raise IncludeError(f"the page includes more than {MAX_INCLUDED_BY_PAGE} bytes")


def resolve_includes(
    block: str, page: Path, root: Path, allowance: Allowance | None = None
) -> tuple[str, tuple[Path, ...]]:
    """Replace the include directives of a fenced block with the text that they name.

    Directives are relative to the folder of the page; nothing outside `root`, the workspace, is read, not even through
    a link. By default the page includes nothing else.

    Returns:
        The text, and the files it was taken from.

    Raises:
        IncludeError: A file is missing, outside, too large or no text, or has no such anchor, or the page includes too
            much.
    """
    allowance = allowance or Allowance()
    lines: list[str] = []
    files: list[Path] = []
    for line in block.splitlines():
        match = _DIRECTIVE.match(line)
        if match is None:
            lines.append(line)
            continue
        path = _inside(page.parent / match["path"], root)
        text = _read(path, allowance)
        lines.append(_anchored(text, match["anchor"], path) if match["anchor"] else text.rstrip("\n"))
        files.append(path)
    return "\n".join(lines) + "\n", tuple(files)


def has_include(page: bytes) -> bool:
    """Return whether a page may include another file; some that say so only in passing count as well."""
    return b"{{#include" in page


def _inside(path: Path, root: Path) -> Path:
    try:
        resolved = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise IncludeError(f"{path.name} does not exist") from error
    if not resolved.is_relative_to(root.resolve()):
        raise IncludeError(f"{path.name} lies outside the workspace")
    return resolved


def _read(path: Path, allowance: Allowance) -> str:
    try:
        if path.stat().st_size > MAX_INCLUDED_BYTES:
            raise IncludeError(f"{path.name} is larger than {MAX_INCLUDED_BYTES} bytes")
        data = read_regular(path, MAX_INCLUDED_BYTES)
        allowance.spend(len(data))
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise IncludeError(f"{path.name} cannot be read as text") from error


def _anchored(text: str, name: str, path: Path) -> str:
    lines = text.splitlines()
    first = _line_of(lines, _ANCHOR.format(end="", name=re.escape(name)))
    last = _line_of(lines, _ANCHOR.format(end="_END", name=re.escape(name)))
    if first is None or last is None or last < first:
        raise IncludeError(f"{path.name} has no anchor {name}")
    return "\n".join(lines[first + 1 : last])


def _line_of(lines: list[str], pattern: str) -> int | None:
    return next((number for number, line in enumerate(lines) if re.match(pattern, line)), None)
