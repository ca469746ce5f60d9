"""Requirements that an answer does not meet, in plain sentences."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from mens_pipeline.evaluation.requirements.parts import Part, Spellings, normalised, parts_of, text_of, typed
from mens_pipeline.evaluation.requirements.requirement import LABEL_FIELDS, Requirement
from mens_pipeline.evaluation.requirements.traits import traits_of
from mens_pipeline.language.ast.data import Const, Import
from mens_pipeline.language.ast.declarations import Declaration, Module
from mens_pipeline.language.ast.types import Param
from mens_pipeline.language.outline import name_of
from mens_pipeline.language.requests import noun_of
from mens_pipeline.language.taxonomy import construct_of

_MOST_NAMED: Final = 5


def unmet(requirements: Iterable[Requirement], module: Module, source: str) -> tuple[str, ...]:
    """Return the requirements that a completion does not meet; by its syntax tree, never by substrings.

    Returns:
        One sentence for each: what was asked for, and what was found. None when all are met.
    """
    return tuple(
        sentence for requirement in requirements if (sentence := _objection(requirement, module, source)) is not None
    )


def _objection(requirement: Requirement, module: Module, source: str) -> str | None:
    alike = [d for d in module.declarations if construct_of(d).name == requirement.construct_]
    named = [d for d in alike if requirement.name is None or requirement.name in names_of(d)]
    faults = [list(_faults(requirement, declaration, source)) for declaration in named]
    num_met = sum(not fault for fault in faults)
    wanted = requirement.count_at_least or 1
    if num_met >= wanted:
        return None
    if not named:
        return f"Asked for {_subject(requirement)}; found {_listing(alike or module.declarations)}."
    wrong = [fault for fault in faults if fault]
    wrong.sort(key=len)
    detail = "; ".join(wrong[0]) if wrong else ""
    if wanted > 1:
        detail = f"found {num_met} that fit" + (f" ({detail})" if detail else "")
        return f"Asked for at least {wanted} times {_subject(requirement)}; {detail}."
    return f"{_capitalised(_subject(requirement))}: {detail}."


def _faults(requirement: Requirement, declaration: Declaration, source: str) -> Iterator[str]:
    """Yield what one declaration lacks, one clause for each key of the requirement."""
    if requirement.label is not None and requirement.label != (label := _label(requirement, declaration)):
        yield f"asked for the text `{requirement.label}`, found {_quoted([label]) if label else 'none'}"
    if requirement.params is not None:
        yield from _param_fault(requirement.params, declaration, source)
    if requirement.returns is not None:
        yield from _type_fault(requirement.returns, declaration, source)
    for part in Part:
        asked = requirement.parts(part)
        if asked:
            yield from _part_fault(asked, part, parts_of(part, requirement.construct_, declaration, source))
    if requirement.contains:
        traits = traits_of(declaration)
        missing = [trait for trait in requirement.contains if trait not in traits]
        if missing:
            yield f"asked for {_quoted(missing)} within it, found no such thing"


def _param_fault(asked: Sequence[str], declaration: Declaration, source: str) -> Iterator[str]:
    params: tuple[Param, ...] = _called(declaration).params
    if len(asked) != len(params) or not all(map(_fits, asked, params, [source] * len(params))):
        written = [typed(param, source) for param in params]
        wanted = f"the parameters {_quoted(asked)}" if asked else "no parameters"
        yield f"asked for {wanted}, found {_quoted(written) or 'none'}"


def _fits(asked: str, param: Param, source: str) -> bool:
    written = typed(param, source) if ":" in asked else text_of(param.type, source) if param.type else ""
    return normalised(asked) == normalised(written)


def _type_fault(asked: str, declaration: Declaration, source: str) -> Iterator[str]:
    given = declaration.type if isinstance(declaration, Const) else _called(declaration).return_type
    written = text_of(given, source) if given is not None else None
    if written is None or normalised(written) != normalised(asked):
        yield f"asked for the type `{asked}`, found {f'`{written}`' if written is not None else 'none'}"


def _part_fault(asked: Sequence[str], part: Part, parts: Sequence[Spellings]) -> Iterator[str]:
    known = {normalised(spelling) for spellings in parts for spelling in spellings}
    missing = [text for text in asked if normalised(text) not in known]
    if missing:
        fullest = [max(spellings, key=len) for spellings in parts]
        yield f"asked for the {part} {_quoted(missing)}, found {_quoted(fullest) or 'none'}"


def _called(declaration: Declaration) -> Any:
    """Return the declaration that has the parameters: this one, or the function it wraps."""
    return getattr(declaration, "function", declaration)


def names_of(declaration: Declaration) -> frozenset[str | None]:
    """Return the names of a declaration; of an import the paths, last parts and aliases of all that it imports."""
    if not isinstance(declaration, Import):
        return frozenset((name_of(declaration),))
    paths = declaration.paths
    return frozenset(
        name for path in paths for name in (".".join(path.segments), path.segments[-1], path.alias) if name is not None
    )


def _label(requirement: Requirement, declaration: Declaration) -> str | None:
    texts = (getattr(declaration, field) for field in LABEL_FIELDS[requirement.construct_])
    return next((text for text in texts if text), None)


def _subject(requirement: Requirement) -> str:
    noun = noun_of(requirement.construct_)
    return f"{noun} `{requirement.name}`" if requirement.name is not None else noun


def _listing(declarations: Sequence[Declaration]) -> str:
    found = [_described(declaration) for declaration in declarations[:_MOST_NAMED]]
    more = len(declarations) - _MOST_NAMED
    return ", ".join([*found, *([f"{more} more"] if more > 0 else [])]) or "no declaration"


def _described(declaration: Declaration) -> str:
    noun, name = noun_of(construct_of(declaration).name), name_of(declaration)
    return f"{noun} `{name}`" if name else noun


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]
