"""Comments that speak to the pipeline, not to the reader: they never belong in an answer."""

import re
from functools import lru_cache
from typing import Final

from mens_pipeline.corpus.extract.frontmatter import comment_header
from mens_pipeline.language import Token, tokenize

_DIRECTIVE: Final = re.compile(r"^(?://|#)\s*(?:@training_prompt:|ANCHOR(?:_END)?:|vox:)")
_LOOKS_LIKE_ONE: Final = re.compile(r"^[ \t]*(?://|#)\s*(?:@training_prompt:|ANCHOR|vox:)", re.MULTILINE)
"""Found in every text with a directive, and sometimes in a string; texts without it need not be tokenised."""

_PROMPT: Final = re.compile(r"^(?://|#)\s*@training_prompt:(?P<prompt>.*)$")
_SKIP: Final = re.compile(r"^(?://|#)\s*vox:skip\b")


def strip_metadata(source: str) -> str:
    """Remove frontmatter, training prompt, anchors and `vox:` directives from a program.

    Only comments that fill their lines go, each with its line end, so no token and no other newline moves.

    Returns:
        The rest, without blank lines at its ends, and with one line end at its end.

    Raises:
        FrontmatterError: The header does not hold together.
    """
    begin = comment_header(source).end_line
    drop = {line for line, comment in _whole_line_comments(source) if is_directive(comment)}
    kept = [text for number, text in enumerate(source.split("\n")) if number >= begin and number not in drop]
    return "\n".join(kept).strip("\n") + "\n"


def is_directive(comment: str) -> bool:
    """Return whether a comment speaks to the pipeline."""
    return _DIRECTIVE.match(comment) is not None


def training_prompt(source: str) -> str | None:
    """Return the `@training_prompt:` of a program; None where there is none."""
    if "@training_prompt:" not in source:
        return None
    matches = (_PROMPT.match(comment) for _, comment in _whole_line_comments(source))
    return next((prompt for match in matches if match and (prompt := match["prompt"].strip())), None)


def has_skip_marker(source: str) -> bool:
    """Return whether a program carries `vox:skip`."""
    return "vox:skip" in source and any(_SKIP.match(comment) for _, comment in _whole_line_comments(source))


@lru_cache(maxsize=1)
def _whole_line_comments(source: str) -> tuple[tuple[int, str], ...]:
    """Return line (from 0) and text of comments alone on their lines; none in a text without directives."""
    comments: list[tuple[int, str]] = []
    if _LOOKS_LIKE_ONE.search(source) is None:
        return ()
    line = 0
    is_alone = True
    for token in tokenize(source):
        if token.kind == "COMMENT" and is_alone:
            comments.append((line, token.text.rstrip("\r")))
        is_alone = _is_alone_behind(token, is_alone=is_alone)
        line += token.text.count("\n")
    return tuple(comments)


def _is_alone_behind(token: Token, *, is_alone: bool) -> bool:
    """Return whether nothing but blanks stands on the line behind this token."""
    if token.kind == "NL":
        return True
    return is_alone and token.kind == "SPACE"
