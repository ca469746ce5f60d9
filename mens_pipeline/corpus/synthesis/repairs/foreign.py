"""Mistakes of habit: syntax of other languages, or of older Vox, that Vox rejects."""

from collections.abc import Mapping
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.repairs.sites import Breakage, Site, is_any, nodes, pick, sites, swapping
from mens_pipeline.language.ast.data import Table, TypeDef
from mens_pipeline.language.ast.expressions import For, Lambda
from mens_pipeline.language.ast.functions import Endpoint
from mens_pipeline.language.ast.types import GenericType


def retired_endpoint(program: Program, random: Random) -> Edit | None:
    """`@endpoint(kind: query)` as the `@query` of older Vox."""
    node = pick(nodes(program, Endpoint), random)
    return Edit(node.start, program.source.index(")", node.start) + 1, f"@{node.kind}") if node else None


def angle_brackets(program: Program, random: Random) -> tuple[Edit, ...] | None:
    """`List[int]` as `List<int>`."""
    node = pick(nodes(program, GenericType), random)
    if node is None:
        return None
    start = program.source.index("[", node.start)
    return Edit(start, start + 1, "<"), Edit(node.end - 1, node.end, ">")


def question_mark_type(program: Program, random: Random) -> tuple[Edit, ...] | None:
    """`Option[str]` as `str?`."""
    node = pick([node for node in nodes(program, GenericType) if node.name == "Option"], random)
    if node is None:
        return None
    start = program.source.index("[", node.start)
    return Edit(node.start, start + 1, ""), Edit(node.end - 1, node.end, "?")


def array_type(program: Program, random: Random) -> tuple[Edit, ...] | None:
    """`List[str]` as `str[]`."""
    node = pick([node for node in nodes(program, GenericType) if node.name.lower() == "list"], random)
    if node is None:
        return None
    start = program.source.index("[", node.start)
    return Edit(node.start, start + 1, ""), Edit(node.end - 1, node.end, "[]")


def bar_lambda(program: Program, random: Random) -> Edit | None:
    """`x => x + 1` as `|x| x + 1`."""
    heads = {node.params[0].end for node in nodes(program, Lambda) if len(node.params) == 1}
    site = pick([site for site in sites(program) if site.token.kind == "=>" and site.before.end in heads], random)
    return Edit(site.before.start, site.token.end, f"|{site.before.text}|") if site else None


def empty_arrow_lambda(program: Program, random: Random) -> Edit | None:
    """`fn() e` as `() => e`."""
    starts = [node.start for node in nodes(program, Lambda)]
    start = pick([start for start in starts if program.source.startswith("fn() ", start)], random)
    return Edit(start, start + 4, "() =>") if start else None


def parenthesised_head(program: Program, random: Random) -> tuple[Edit, ...] | None:
    """`for x in xs {` as `for (x in xs) {`."""
    node = pick([node for node in nodes(program, For) if node.key is None], random)
    if node is None:
        return None
    start = node.start + len("for ")
    return Edit(start, start, "("), Edit(node.iterable.end, node.iterable.end, ")")


def increment(program: Program, random: Random) -> Edit | None:
    """`x += 1` as `x++`."""
    steps = [site for site in sites(program) if site.token.kind in {"+=", "-="} and site.after.text == "1"]
    site = pick(steps, random)
    return Edit(site.before.end, site.after.end, site.token.kind[0] * 2) if site else None


def parenthesised_fields(program: Program, random: Random) -> tuple[Edit, ...] | None:
    """Replace the braces of a type or table with parentheses."""
    owners: list[TypeDef | Table] = [*nodes(program, TypeDef), *nodes(program, Table)]
    node = pick([node for node in owners if node.fields and program.source[node.end - 1] == "}"], random)
    if node is None:
        return None
    start = program.source.index("{", node.start)
    return Edit(start, start + 1, "("), Edit(node.end - 1, node.end, ")")


def _is_before_name(kind: str, site: Site) -> bool:
    return site.token.kind == kind and site.after.kind in {"IDENT", "TYPEIDENT"}


def _is_type_word(site: Site) -> bool:
    return _is_before_name("type", site) and site.before.kind != "@table"


def _is_else_if(site: Site) -> bool:
    return site.token.kind == "if" and site.before.kind == "else"


def else_if_as_one_word(program: Program, random: Random) -> Edit | None:
    """`else if` as `elif` or `elseif`."""
    site = pick([site for site in sites(program) if _is_else_if(site)], random)
    return Edit(site.before.start, site.token.end, random.choice(("elif", "elseif"))) if site else None


FOREIGN: Final[Mapping[str, Breakage]] = {
    "double-ampersand": swapping(is_any("and"), "&&"),
    "double-bar": swapping(is_any("or"), "||"),
    "single-equals": swapping(is_any("is", "=="), "="),
    "triple-equals": swapping(is_any("is", "=="), "==="),
    "foreign-function-word": swapping(lambda site: _is_before_name("fn", site), "def", "function", "func", "fun"),
    "foreign-type-word": swapping(_is_type_word, "struct", "class", "interface"),
    "foreign-let": swapping(is_any("let"), "const", "var", "val"),
    "foreign-import": swapping(is_any("import"), "use", "require", "include"),
    "else-if-as-one-word": else_if_as_one_word,
    "retired-endpoint": retired_endpoint,
    "retired-component": swapping(is_any("component"), "@component", "@component fn", "@island"),
    "angle-brackets": angle_brackets,
    "question-mark-type": question_mark_type,
    "array-type": array_type,
    "bar-lambda": bar_lambda,
    "empty-arrow-lambda": empty_arrow_lambda,
    "parenthesised-head": parenthesised_head,
    "increment": increment,
    "parenthesised-fields": parenthesised_fields,
}
"""Name -> breakage."""
