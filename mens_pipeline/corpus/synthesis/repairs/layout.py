"""Right tokens in the wrong place: on another line, or in another order."""

from collections.abc import Mapping
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.repairs.sites import Breakage, Site, indent_at, nodes, pick, sites
from mens_pipeline.language.ast.functions import Function

_OPERATORS: Final = frozenset(("+", "*", "/", "%", "and", "or", "is", "isnt", "==", "!=", "<", ">", "<=", ">=", "|>"))
_FEWEST_PARAMETERS: Final = 2


def brace_on_its_own_line(program: Program, random: Random) -> Edit | None:
    """Move the `{` of a function's body to the line below its signature."""
    ends = {node.return_type.end for node in nodes(program, Function) if node.return_type is not None}
    site = pick([site for site in sites(program) if site.token.kind == "{" and site.before.end in ends], random)
    return Edit(site.before.end, site.token.start, "\n") if site else None


def line_break_before_operator(program: Program, random: Random) -> Edit | None:
    """Move the second half of an infix expression to a line that begins with the operator."""
    operators = [site for site in sites(program) if site.token.kind in _OPERATORS and _follows_a_blank(site)]
    site = pick(operators, random)
    if site is None:
        return None
    return Edit(site.before.end, site.token.start, f"\n{indent_at(program, site.token.start)}    ")


def _follows_a_blank(site: Site) -> bool:
    return site.before.end < site.token.start


def parameters_on_lines(program: Program, random: Random) -> tuple[Edit, ...] | None:
    """Each parameter on a line of its own."""
    function = pick([node for node in nodes(program, Function) if len(node.params) >= _FEWEST_PARAMETERS], random)
    if function is None:
        return None
    params = function.params
    starts = (params[0].start, *(param.end + 1 for param in params[:-1]))
    breaks = (Edit(start, param.start, "\n    ") for start, param in zip(starts, params, strict=True))
    return *breaks, Edit(params[-1].end, params[-1].end, "\n")


def effects_behind_result(program: Program, random: Random) -> tuple[Edit, ...] | None:
    """Move the `uses` clause behind the return type."""
    results = {node.return_type.start: node.return_type.end for node in nodes(program, Function) if node.return_type}
    keywords = (site for site in sites(program) if site.token.kind == "to" and site.after.start in results)
    clauses = ((site, program.source.rfind(" uses ", 0, site.token.start)) for site in keywords)
    fitting = [(site, start) for site, start in clauses if _is_clause(program.source[start : site.token.start])]
    clause = pick(fitting, random)
    if clause is None:
        return None
    site, start = clause
    end = results[site.after.start]
    return Edit(start, site.before.end, ""), Edit(end, end, program.source[start : site.before.end])


def _is_clause(text: str) -> bool:
    """Whether a text is the `uses` clause of a signature and nothing else."""
    return text.startswith(" uses ") and not any(mark in text for mark in '{}\n"')


LAYOUT: Final[Mapping[str, Breakage]] = {
    "brace-on-its-own-line": brace_on_its_own_line,
    "line-break-before-operator": line_break_before_operator,
    "parameters-on-lines": parameters_on_lines,
    "effects-behind-result": effects_behind_result,
}
"""Name -> breakage."""
