"""Metadata in the header and comments of a source, and the rule for training on the source."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Final

import yaml
from pydantic import JsonValue

from mens_pipeline.corpus.schema.reasons import DropReason
from mens_pipeline.language import tokenize
from mens_pipeline.storage.yaml_file import YamlLimitError, parse_yaml

MAX_FRONTMATTER: Final = 16_384
"""Characters of frontmatter; a larger header is refused."""

MAX_BRACKETS: Final = 200
"""Opening brackets and braces of a header; YAML takes quadratic time on nested ones."""

UNSEEN: Final = r"[\s\u200b-\u200f\u2060\ufeff]*+"
"""Pattern of blank lines and invisible characters, which may precede a header by mistake."""

_FENCE: Final = "// ---"
_LOST_OPT_OUT: Final = re.compile(
    rf"(?:{UNSEEN}//(?! ---[ \t]*\n)[^\n]*+\n)*+{UNSEEN}// ---[ \t]*+\n"
    r"(?://[^\n]*+\n)*?//[ \t]*+(?i:training_eligible:[ \t]*+(?!true\b)|status:[ \t]*+[\"']?deprecated\b)"
)
"""Matches an opt-out in a header below other comments. Such a header is not read, so its file is refused."""

_ENTRY: Final = re.compile(r"^(?P<key>[A-Za-z_][\w-]*):\s*(?P<value>.*)$")
_MARKER: Final = re.compile(r"^\s*(?://|#)\s?(?P<text>.*)$")


class FrontmatterError(Exception):
    """A header that is not a plain YAML mapping; never leaves this package."""


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata that a source states about itself, and the number of lines of the header, fences included."""

    values: dict[str, Any]
    end_line: int


def comment_header(source: str) -> Header:
    """Read the `// ---` header at the top of a program; empty without a header.

    Raises `FrontmatterError` if a header opts out below the first line, does not close, or is not a YAML mapping.
    """
    lines = source.split("\n")
    if lines[0].rstrip() != _FENCE:
        if _LOST_OPT_OUT.match(source) is not None:
            raise FrontmatterError("the header does not start on the first line")
        return Header({}, 0)
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == _FENCE:
            body = (_MARKER.sub(r"\g<text>", text) for text in lines[1:number])
            return Header(parse_header("\n".join(body)), number + 1)
        if not line.startswith("//"):
            break
    raise FrontmatterError(f"the header opened by `{_FENCE}` is never closed")


def parse_header(text: str) -> dict[str, Any]:
    """Parse YAML text as a mapping; raise `FrontmatterError` if it is too large, uses aliases, or is not a mapping."""
    if len(text) > MAX_FRONTMATTER:
        raise FrontmatterError(f"the header has {len(text)} characters, more than {MAX_FRONTMATTER}")
    brackets = text.count("[") + text.count("{")
    if brackets > MAX_BRACKETS:
        raise FrontmatterError(f"the header has {brackets} opening brackets, more than {MAX_BRACKETS}")
    try:
        values = parse_yaml(text, allow_aliases=False)
    except YamlLimitError as error:
        raise FrontmatterError(f"the header is refused: {error}") from error
    except yaml.YAMLError:
        values = _load_line_by_line(text)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise FrontmatterError("the header is not a mapping")
    return {str(key): value for key, value in values.items()}


def find_reason(values: dict[str, Any], *, must_opt_in: bool) -> tuple[DropReason, str] | None:
    """Return the reason to keep a source with this header out of training, with a detail; None if it may be used.

    The header of a page must opt in; a program may be used unless its header opts out.
    """
    eligible = values.get("training_eligible")
    if str(values.get("status", "")).strip().lower() == "deprecated":
        return DropReason.DEPRECATED, "status: deprecated"
    if eligible is False:
        return DropReason.OPTED_OUT, "training_eligible: false"
    if eligible is None and must_opt_in:
        return DropReason.NOT_OPTED_IN, "no training_eligible: true"
    if eligible is not None and eligible is not True:
        return DropReason.BAD_FRONTMATTER, f"training_eligible is {eligible!r}, expected true or false"
    return None


def read_weight(values: dict[str, Any]) -> float:
    """Return `training_weight`, 1 by default; raise `FrontmatterError` unless it is a positive number."""
    weight = values.get("training_weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < float("inf"):
        raise FrontmatterError(f"training_weight is {weight!r}, expected a positive number")
    return float(weight)


def jsonable(value: Any) -> JsonValue:
    """Convert a YAML value to JSON types; dates, infinities, NaN and other scalars become text."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _load_line_by_line(text: str) -> dict[str, Any]:
    """Parse a header line by line; keep invalid YAML values, such as `[fn, @test]`, as text."""
    values: dict[str, Any] = {}
    for line in text.splitlines():
        match = _ENTRY.match(line)
        if match is None:
            if line.strip():
                raise FrontmatterError(f"the header is not YAML at {line.strip()[:40]!r}")
            continue
        try:
            values[match["key"]] = parse_yaml(match["value"], allow_aliases=False)
        except YamlLimitError as error:
            raise FrontmatterError(f"the header is refused: {error}") from error
        except yaml.YAMLError:
            values[match["key"]] = match["value"]
    return values


_DIRECTIVE: Final = re.compile(r"^(?://|#)\s*(?:@training_prompt:|ANCHOR(?:_END)?:|vox:)")
_LOOKS_LIKE_ONE: Final = re.compile(r"^[ \t]*(?://|#)\s*(?:@training_prompt:|ANCHOR|vox:)", re.MULTILINE)
"""Matches every text with a directive, and some others; texts without a match need not be tokenised."""

_PROMPT: Final = re.compile(r"^(?://|#)\s*@training_prompt:(?P<prompt>.*)$")
_SKIP: Final = re.compile(r"^(?://|#)\s*vox:skip\b")


def strip_metadata(source: str) -> str:
    """Remove frontmatter, training prompt, anchors and `vox:` directives from a program.

    Removes only comments that fill their lines, each with its line end, so all tokens and other newlines stay. The
    result has no blank lines at its ends and one final newline.

    Raises `FrontmatterError` if the header does not close or is not a YAML mapping.
    """
    begin = comment_header(source).end_line
    drop = {line for line, comment in _whole_line_comments(source) if is_directive(comment)}
    kept = [text for number, text in enumerate(source.split("\n")) if number >= begin and number not in drop]
    return "\n".join(kept).strip("\n") + "\n"


def is_directive(comment: str) -> bool:
    """Return whether a comment is a directive to the pipeline."""
    return _DIRECTIVE.match(comment) is not None


_ASIDE: Final = re.compile(
    r"\W*$|[-=*#~_+<>/\\|]{3}|.*[-=*#~_+/]{3}$|!/"  # separators, titles in one, a shebang
    r"|.*-\*-|.{0,20}\b(?:vim?:|ex: ?se|kate:|coding[:=] ?(?:utf|latin|ascii|iso|cp))|(?:local variables|end):$"
    r"|#?endregion\b|#region\b|(?:es|ts|py|no)[-_]?lint\b|(?:eslint|prettier|cspell|istanbul|biome)[-:]|noqa\b"
    r"|@(?:ts-|formatter|generated|licen[cs]e|preserve|copyright|file\b|author|version|since|date)|spdx-[\w-]+:"
    r"|(?:copyright|\(c\)|©).*(?:\d{4}|\(c\)|©|authors|reserved)|authors?:|file(?:name)?: ?\S+\.\w+$"
    r"|(?:the )?(?:mit|bsd|isc|apache|gnu|mozilla)\b.{0,60}(?-i:Licen[cs]e)\b.{0,20}$"
    r"|(?:version|date|created|(?:last )?modified):? ?v?\d|(?:todo|fixme|xxx|hack)\b[:( ]",
    re.IGNORECASE,
)
"""Matches the start of a comment line that says nothing about the declaration below it."""

_NOTICE: Final = re.compile(
    r"\blicen[cs]ed (?:under|to you)\b|\ball rights reserved\b|\bcopyright (?:\(c\)|©|\d{4}|notice|laws)"
    r"|\b(?:of|under|with|see) (?:the|this|an?) (?:[\w.,-]+ ){0,4}(?-i:Licen[cs]e)\b|\bpermission is hereby\b"
    r"|\bwithout (?:any )?warrant|\bwarrant(?:y|ies) of\b|\bredistribut(?:e it|ions? (?:and|of|in))\b"
    r"|\b(?:free|unencumbered) software\b|\b(?:copy of|terms of) the (?:mpl|gnu)\b|\bneither the names? of\b"
    r"|\b(?:do not|don't|never) (?:edit|modify|change)(?: this file| by hand| manually|\W*$)|\bchanges to this file\b"
    r"|^(?:this (?:file|code|module) (?:is|was|has been) )?(?:(?:auto|machine|code)[- ]?|automatically )?generated "
    r"(?:automatically|by|from|with|on|using|code|file)\b|(?-i:^[^a-z]{60,}$)|^\S+://\S+$",
    re.IGNORECASE,
)
"""Matches part of a sentence from a licence or a generator."""

_SENTENCE_END: Final = re.compile(r"(?<=[.!?;:]) +(?=[A-Z\"*-])|\n")


def task_sentence(comment: Sequence[str]) -> str | None:
    """Join the lines of a comment that say something about the declaration below; None if there are none.

    Licences, generator notices, marks for editors and tools, separators and directives are left out.
    """
    lines = (
        "\n"
        if _ASIDE.match(line) or is_directive(f"// {line}")
        else f"{line}\n"
        if "://" in line.split(" ")[-1]
        else line
        for line in comment
    )
    sentences = _SENTENCE_END.split(" ".join(lines))
    return " ".join(found for text in sentences if (found := text.strip()) and not _NOTICE.search(found)) or None


def training_prompt(source: str) -> str | None:
    """Return the `@training_prompt:` of a program, or None."""
    if "@training_prompt:" not in source:
        return None
    matches = (_PROMPT.match(comment) for _, comment in _whole_line_comments(source))
    return next((prompt for match in matches if match and (prompt := match["prompt"].strip())), None)


def has_skip_marker(source: str) -> bool:
    """Return whether a program contains `vox:skip`."""
    return "vox:skip" in source and any(_SKIP.match(comment) for _, comment in _whole_line_comments(source))


@lru_cache(maxsize=1)
def _whole_line_comments(source: str) -> tuple[tuple[int, str], ...]:
    comments: list[tuple[int, str]] = []
    if _LOOKS_LIKE_ONE.search(source) is None:
        return ()
    line = 0
    is_alone = True
    for token in tokenize(source):
        if token.kind == "COMMENT" and is_alone:
            comments.append((line, token.text))
        is_alone = token.kind == "NL" or (is_alone and token.kind == "SPACE")
        line += token.text.count("\n")
    return tuple(comments)
