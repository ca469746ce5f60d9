"""A Markdown page as its header, fenced blocks and sections."""

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin

from mens_pipeline.corpus.extract.frontmatter import FrontmatterError, parse_header

_INFO_WORD: Final = re.compile(r"[A-Za-z0-9_.-]+")
_RULE: Final = "---"
_LOST_HEADER: Final = re.compile(r"\ufeff?\s*+---[ \t]*+\r?\n[A-Za-z_][\w-]*+:")
_SKIPPING: Final = frozenset(("skip", "ignore"))


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of Vox.

    Lines count from 0; `last_line` is the one behind its last. Heading and paragraph are those directly above it.
    """

    text: str
    first_line: int
    last_line: int
    is_skipped: bool
    heading: str
    paragraph: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of level 2 or deeper with the prose below it.

    `prose` is the paragraphs and lists below it, up to the next heading, fenced blocks left out. Lines count from 0:
    that of the heading, and the one behind the section.
    """

    heading: str
    prose: str
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Page:
    """A parsed page.

    `title` is the one in the header, else the first heading.
    """

    header: dict[str, Any]
    title: str
    blocks: tuple[Block, ...]
    sections: tuple[Section, ...]


def parse_page(text: str) -> Page:
    """Read a page of CommonMark with YAML frontmatter.

    Raises:
        FrontmatterError: The frontmatter is no mapping.
    """
    tokens = _parser().parse(text)
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
    """Check that a page without a header does not begin with what was meant as one.

    Raises:
        FrontmatterError: It is never closed, or does not begin in the first line.
    """
    if _LOST_HEADER.match(text) is None:
        return
    if text.startswith(_RULE):
        raise FrontmatterError("the header opened by `---` is never closed")
    raise FrontmatterError("the header does not begin in the first line")


@cache
def _parser() -> MarkdownIt:
    # What stands inside a line is taken as it is written, and reading it is where a hostile page would cost most.
    return MarkdownIt("commonmark").use(front_matter_plugin).disable(["inline", "text_join"])


def _blocks(tokens: list[Token]) -> tuple[Block, ...]:
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
                is_skipped = not _SKIPPING.isdisjoint(words)
                blocks.append(Block(token.content, first, last, is_skipped, heading, paragraph))
    return tuple(blocks)


def _section(tokens: list[Token], lines: list[str]) -> Section:
    """Build the section of a heading token and all up to the next heading."""
    placed = [token for token in tokens if token.map is not None and token.level == 0]
    ranges = [token.map for token in placed[1:] if token.map is not None and token.type not in {"fence", "html_block"}]
    prose = "\n\n".join("\n".join(lines[first:last]).strip() for first, last in ranges)
    maps = [token.map for token in placed if token.map is not None]
    return Section(tokens[1].content, prose, maps[0][0], maps[-1][1])
