"""Small words and marks that are missing or wrong."""

from collections.abc import Mapping
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.repairs.sites import Breakage, Site, is_any, nodes, pick, sites, swapping
from mens_pipeline.language.ast.expressions import Argument, Attribute, MatchArm
from mens_pipeline.language.ast.functions import DecoratorArgument
from mens_pipeline.language.ast.types import Param

_NAMES: Final = frozenset(("IDENT", "TYPEIDENT"))


def _without(kind: str) -> Breakage:
    """Return a breakage that leaves a token out, with the blanks before it."""

    def breakage(program: Program, random: Random) -> Edit | None:
        site = pick([site for site in sites(program) if site.token.kind == kind and site.before.kind != "NL"], random)
        return Edit(site.before.end, site.token.end, "") if site else None

    return breakage


def trailing_comma_in_parameters(program: Program, random: Random) -> Edit | None:
    """Add a comma behind the last parameter."""
    ends = {node.end for node in nodes(program, Param)}
    site = pick([site for site in sites(program) if site.token.kind == ")" and site.before.end in ends], random)
    return Edit(site.token.start, site.token.start, ",") if site else None


def missing_arm_arrow(program: Program, random: Random) -> Edit | None:
    """Remove the `=>` of a match arm."""
    return _arm_arrow(program, "", random)


def old_arm_arrow(program: Program, random: Random) -> Edit | None:
    """Replace the `=>` of a match arm with `->` or `:`."""
    return _arm_arrow(program, random.choice((" ->", ":")), random)


def _arm_arrow(program: Program, text: str, random: Random) -> Edit | None:
    patterns = {node.pattern.end for node in nodes(program, MatchArm)}
    site = pick([site for site in sites(program) if site.token.kind == "=>" and site.before.end in patterns], random)
    return Edit(site.before.end, site.token.end, text) if site else None


def _gives_a_type(site: Site) -> bool:
    return site.token.kind == "to" and site.before.kind == ")" and site.after.kind in {*_NAMES, "dec"}


def colon_for_argument(program: Program, random: Random) -> Edit | None:
    """Write a named argument as `name: value`."""
    arguments = (*nodes(program, Argument), *nodes(program, Attribute), *nodes(program, DecoratorArgument))
    starts = {node.start for node in arguments}
    site = pick([site for site in sites(program) if site.token.kind == "=" and site.before.start in starts], random)
    return Edit(site.before.end, site.after.start, ": ") if site else None


PUNCTUATION: Final[Mapping[str, Breakage]] = {
    "missing-colon": swapping(is_any(":"), ""),
    "missing-comma": swapping(is_any(","), ""),
    "missing-equals": _without("="),
    "missing-return-keyword": _without("to"),
    "wrong-return-keyword": swapping(_gives_a_type, ":", "=>"),
    "trailing-comma-in-parameters": trailing_comma_in_parameters,
    "missing-arm-arrow": missing_arm_arrow,
    "old-arm-arrow": old_arm_arrow,
    "colon-for-argument": colon_for_argument,
    "double-comma": swapping(is_any(","), ",,"),
    "spelled-transition": swapping(is_any("->"), "to", "=>"),
}
"""Name -> breakage."""
