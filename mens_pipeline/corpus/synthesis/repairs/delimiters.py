"""Brackets and quotes that are missing or too many."""

from collections.abc import Mapping
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.repairs.sites import Breakage, Site, indent_at, pick, sites, swapping

_CLOSERS: Final = frozenset((")", "]", "}"))
_ENDS: Final = frozenset(("NL", "{", "to"))


def missing_closing_brace(program: Program, random: Random) -> Edit | None:
    """One `}` left out, with its line if it stands alone."""
    site = pick([site for site in sites(program) if site.token.kind == "}"], random)
    if site is None:
        return None
    is_alone = site.before.kind == "NL" and site.after.kind == "NL"
    start = site.before.start if is_alone else site.before.end
    return Edit(start, site.token.end, "")


def missing_opening_brace(program: Program, random: Random) -> Edit | None:
    """One `{` at the end of a line left out."""
    site = pick([site for site in sites(program) if _opens_a_body(site)], random)
    return Edit(site.before.end, site.token.end, "") if site else None


def stray_brace(program: Program, random: Random) -> Edit | None:
    """One `}` too many, on a line of its own below another one."""
    site = pick([site for site in sites(program) if site.token.kind == "}" and site.after.kind == "NL"], random)
    if site is None:
        return None
    end = site.token.end
    return Edit(end, end, "\n" + indent_at(program, site.token.start) + "}")


def _ends_a_group(site: Site) -> bool:
    """Whether a `)` is the last of a run: its place can be told without it."""
    return site.token.kind == ")" and site.before.kind not in _CLOSERS and site.after.kind in _ENDS


def _opens_a_body(site: Site) -> bool:
    return site.token.kind == "{" and site.after.kind == "NL" and site.before.kind in {")", "IDENT", "TYPEIDENT", "]"}


def _ends_a_list(site: Site) -> bool:
    return site.token.kind == "]" and site.before.kind not in _CLOSERS | {"NL"}


def _can_lose_its_quote(site: Site) -> bool:
    """Whether a string has some text on one line and ends where one can see it."""
    ends = {"NL", ")", ",", "}", "]"}
    text = site.token.text
    return site.token.kind == "STRING" and site.after.kind in ends and "\n" not in text and text[-2].isalnum()


def unterminated_string(program: Program, random: Random) -> Edit | None:
    """Remove the closing quote of a string."""
    site = pick([site for site in sites(program) if _can_lose_its_quote(site)], random)
    return Edit(site.token.end - 1, site.token.end, "") if site else None


DELIMITERS: Final[Mapping[str, Breakage]] = {
    "missing-closing-brace": missing_closing_brace,
    "missing-opening-brace": missing_opening_brace,
    "missing-closing-parenthesis": swapping(_ends_a_group, ""),
    "missing-closing-bracket": swapping(_ends_a_list, ""),
    "stray-brace": stray_brace,
    "stray-parenthesis": swapping(_ends_a_group, "))"),
    "mismatched-bracket": swapping(lambda site: _ends_a_list(site) or _ends_a_group(site), ")", "]", "}"),
    "unterminated-string": unterminated_string,
}
"""Name -> breakage."""
