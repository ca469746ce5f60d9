"""Ways to break a program: misspelt words, wrong punctuation or delimiters, tokens on another line or swapped."""

from collections.abc import Mapping
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.repairs.sites import Breakage, Site, indent_at, is_any, nodes, pick, sites, swapping
from mens_pipeline.language.ast.expressions import Argument, Attribute, MatchArm
from mens_pipeline.language.ast.functions import DecoratorArgument, Function
from mens_pipeline.language.ast.types import Param
from mens_pipeline.language.vocabulary import DECORATORS, KEYWORDS

_CLOSERS: Final = frozenset((")", "]", "}"))
_ENDS: Final = frozenset(("NL", "{", "to"))


def missing_closing_brace(program: Program, random: Random) -> Edit | None:
    """Leave one `}` out, with its line if it stands alone."""
    site = pick([site for site in sites(program) if site.token.kind == "}"], random)
    if site is None:
        return None
    is_alone = site.before.kind == "NL" and site.after.kind == "NL"
    start = site.before.start if is_alone else site.before.end
    return Edit(start, site.token.end, "")


def missing_opening_brace(program: Program, random: Random) -> Edit | None:
    """Leave one `{` at the end of a line out."""
    site = pick([site for site in sites(program) if _opens_a_body(site)], random)
    return Edit(site.before.end, site.token.end, "") if site else None


def stray_brace(program: Program, random: Random) -> Edit | None:
    """Add one `}` too many, on a line of its own below another one."""
    site = pick([site for site in sites(program) if site.token.kind == "}" and site.after.kind == "NL"], random)
    if site is None:
        return None
    end = site.token.end
    return Edit(end, end, "\n" + indent_at(program, site.token.start) + "}")


def _ends_a_group(site: Site) -> bool:
    """Return whether a `)` is the last of a run: its place can be told without it."""
    return site.token.kind == ")" and site.before.kind not in _CLOSERS and site.after.kind in _ENDS


def _opens_a_body(site: Site) -> bool:
    return site.token.kind == "{" and site.after.kind == "NL" and site.before.kind in {")", "IDENT", "TYPEIDENT", "]"}


def _ends_a_list(site: Site) -> bool:
    return site.token.kind == "]" and site.before.kind not in _CLOSERS | {"NL"}


def _can_lose_its_quote(site: Site) -> bool:
    """Return whether a string has some text on one line and ends where one can see it."""
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


_FEWEST_LETTERS: Final = 2


def misspelled_keyword(program: Program, random: Random) -> Edit | None:
    """Misspell a keyword: two letters swapped, one doubled or one left out."""
    return _misspelt(program, KEYWORDS, random)


def misspelled_decorator(program: Program, random: Random) -> Edit | None:
    """Misspell a decorator: two letters swapped, one doubled or one left out."""
    return _misspelt(program, DECORATORS, random)


def _misspelt(program: Program, words: frozenset[str], random: Random) -> Edit | None:
    token = pick([token for token in program.significant if token.kind in words], random)
    if token is None:
        return None
    text = _typo(token.text, random)
    is_known = text in KEYWORDS or text in program.identifiers
    return None if is_known else Edit(token.start, token.end, text)


def _typo(word: str, random: Random) -> str:
    """Misspell a word as in hasty typing; the `@` of a decorator stays."""
    first = 1 if word.startswith("@") else 0
    place = random.choice(range(first, len(word) - 1))
    one, two = word[place], word[place + 1]
    forms = [word[:place] + two + one + word[place + 2 :], word[:place] + one + one + word[place + 1 :]]
    if len(word) > first + _FEWEST_LETTERS:
        forms.append(word[: place + 1] + word[place + 2 :])
    return random.choice([form for form in forms if form != word])


SPELLING: Final[Mapping[str, Breakage]] = {
    "misspelled-keyword": misspelled_keyword,
    "misspelled-decorator": misspelled_decorator,
}
"""Name -> breakage."""


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
    """Put each parameter on a line of its own."""
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
    """Return whether a text is the `uses` clause of a signature and nothing else."""
    return text.startswith(" uses ") and not any(mark in text for mark in '{}\n"')


LAYOUT: Final[Mapping[str, Breakage]] = {
    "brace-on-its-own-line": brace_on_its_own_line,
    "line-break-before-operator": line_break_before_operator,
    "parameters-on-lines": parameters_on_lines,
    "effects-behind-result": effects_behind_result,
}
"""Name -> breakage."""
