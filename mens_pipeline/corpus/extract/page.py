"""Parse a Markdown page: its header, fenced blocks and sections, and the files that it includes."""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin

from mens_pipeline.corpus.extract.metadata import UNSEEN, FrontmatterError, parse_header
from mens_pipeline.corpus.schema.file_text import decode_text
from mens_pipeline.storage.files import read_regular

_INFO_WORD: Final = re.compile(r"[A-Za-z0-9_.-]+")
_LOST_HEADER: Final = re.compile(rf"{UNSEEN}---[ \t]*+\n[A-Za-z_][\w-]*+:")
_PARSER: Final = MarkdownIt("commonmark").use(front_matter_plugin).disable(["inline", "text_join"])
"""Inline markup is kept as written: parsing it would be the most expensive part of a hostile page."""


@dataclass(frozen=True, slots=True)
class PageBlock:
    """A fenced block of Vox.

    Lines count from 0; `last_line` is the line after the block. `heading` and `paragraph` are directly above it.
    """

    text: str
    first_line: int
    last_line: int
    is_skipped: bool
    heading: str
    paragraph: str


@dataclass(frozen=True, slots=True)
class PageSection:
    """A heading of level 2 or deeper with its paragraphs and lists up to the next heading, without fenced blocks.

    Lines count from 0: `first_line` is the heading, `last_line` the line after the section.
    """

    heading: str
    prose: str
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Page:
    """A parsed page; its title comes from the header, or else from the first heading."""

    header: dict[str, Any]
    title: str
    blocks: tuple[PageBlock, ...]
    sections: tuple[PageSection, ...]


def parse_page(text: str) -> Page:
    """Parse a page of CommonMark with YAML frontmatter; raise `FrontmatterError` if it is not a mapping."""
    tokens = _PARSER.parse(text)
    header = next((parse_header(token.content) for token in tokens if token.type == "front_matter"), {})
    headings = [index for index, token in enumerate(tokens) if token.type == "heading_open" and token.level == 0]
    title = header.get("title")
    if not isinstance(title, str):
        title = tokens[headings[0] + 1].content if headings else ""
    lines = text.split("\n")
    bounds = [*headings, len(tokens)]
    sections = tuple(_section(tokens[start:end], lines) for start, end in pairwise(bounds) if tokens[start].tag != "h1")
    return Page(header, title, _blocks(tokens), sections)


def refuse_lost_header(text: str) -> None:
    """Raise `FrontmatterError` if a page without a header starts with a malformed one."""
    if _LOST_HEADER.match(text) is None:
        return
    if text.startswith("---"):
        raise FrontmatterError("the header opened by `---` is never closed")
    raise FrontmatterError("the header does not start on the first line")


def _blocks(tokens: list[Token]) -> tuple[PageBlock, ...]:
    blocks = []
    heading = paragraph = ""
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            heading, paragraph = tokens[index + 1].content, ""
        elif token.type == "paragraph_open":
            paragraph = tokens[index + 1].content
        elif token.type == "fence" and token.map is not None:
            words = _INFO_WORD.findall(token.info.lower())
            if words[:1] == ["vox"]:
                first = token.map[0] + 1
                last = first + token.content.count("\n")
                is_skipped = not {"skip", "ignore"}.isdisjoint(words)
                blocks.append(PageBlock(token.content, first, last, is_skipped, heading, paragraph))
    return tuple(blocks)


def _section(tokens: list[Token], lines: list[str]) -> PageSection:
    placed = [token for token in tokens if token.map is not None and token.level == 0]
    ranges = [token.map for token in placed[1:] if token.map is not None and token.type not in {"fence", "html_block"}]
    prose = "\n\n".join("\n".join(lines[first:last]).strip() for first, last in ranges)
    maps = [token.map for token in placed if token.map is not None]
    return PageSection(tokens[1].content, prose, maps[0][0], maps[-1][1])


_DIRECTIVE: Final = re.compile(r"^\s*\{\{#include\s+(?P<path>[^\s:}]+)(?::(?P<anchor>[A-Za-z0-9_-]+))?\s*\}\}\s*$")
_ANCHOR: Final = r"^\s*(?://|#)\s*ANCHOR{end}:\s*{name}\s*$"
MAX_INCLUDED_BYTES: Final = 1_048_576
"""Largest size of one included file."""

MAX_INCLUDED_BY_PAGE: Final = 4 * MAX_INCLUDED_BYTES
"""Largest size of all includes of a page: a line of twenty characters may include a file of a million."""


class IncludeError(Exception):
    """An include that cannot be resolved; never leaves this package."""


@dataclass
class Allowance:
    """Bytes that the includes of a page may still read."""

    num_bytes: int = MAX_INCLUDED_BY_PAGE

    def spend(self, num_bytes: int) -> None:
        """Count a file; raise `IncludeError` if the allowance is used up."""
        self.num_bytes -= num_bytes
        if self.num_bytes < 0:
            raise IncludeError(f"the page includes more than {MAX_INCLUDED_BY_PAGE} bytes")


def resolve_includes(block: str, page: Path, root: Path, allowance: Allowance) -> tuple[str, tuple[Path, ...]]:
    """Replace the include directives of a fenced block with the text that they name.

    Directives are relative to the folder of the page. Nothing outside `root`, the workspace, is read, not even through
    a link.

    Returns:
        The text, and the included files.

    Raises:
        IncludeError: A file is missing, outside, too large or not text, lacks the anchor, or exceeds the allowance.
    """
    lines: list[str] = []
    files: list[Path] = []
    for line in block.splitlines():
        match = _DIRECTIVE.match(line)
        if match is None:
            lines.append(line)
            continue
        path, text = _read(page.parent / match["path"], root, allowance)
        lines.append(_cut_anchor(text, match["anchor"], path) if match["anchor"] else text.rstrip("\n"))
        files.append(path)
    return "\n".join(lines) + "\n", tuple(files)


def has_include(page: bytes) -> bool:
    """Return whether a page may include another file; some false positives are fine."""
    return b"{{#include" in page


def _read(path: Path, root: Path, allowance: Allowance) -> tuple[Path, str]:
    name = path.name
    try:
        path = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise IncludeError(f"{name} does not exist") from error
    if not path.is_relative_to(root.resolve()):
        raise IncludeError(f"{name} lies outside the workspace")
    try:
        if path.stat().st_size > MAX_INCLUDED_BYTES:
            raise IncludeError(f"{path.name} is larger than {MAX_INCLUDED_BYTES} bytes")
        data = read_regular(path, MAX_INCLUDED_BYTES, below=root.resolve())
        allowance.spend(len(data))
        return path, decode_text(data)
    except (OSError, UnicodeDecodeError) as error:
        raise IncludeError(f"{path.name} cannot be read as text") from error


def _cut_anchor(text: str, name: str, path: Path) -> str:
    lines = text.splitlines()
    first, last = (
        next((number for number, line in enumerate(lines) if pattern.match(line)), None)
        for pattern in (re.compile(_ANCHOR.format(end=end, name=re.escape(name))) for end in ("", "_END"))
    )
    if first is None or last is None or last < first:
        raise IncludeError(f"{path.name} has no anchor {name}")
    return "\n".join(lines[first + 1 : last])
