"""Requirements of a task, as its manifest states them, and the check of a completion against them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mens_pipeline.corpus.schema.prompts import noun_of, text_of
from mens_pipeline.errors import did_you_mean
from mens_pipeline.evaluation.requirement_parts import (
    Part,
    Spellings,
    find_trait_error,
    format_param,
    has_part,
    normalise_spacing,
    parts_of,
    traits_of,
)
from mens_pipeline.language import CONSTRUCTS, construct_of, name_of
from mens_pipeline.language.ast import Const, Declaration, Import, Module, Param

_UNNAMED: Final = frozenset(("routes", "design_tokens", "back_button", "deep_link", "push", "reactive_module"))
_CALLED: Final = frozenset(
    (
        *("function", "test", "forall", "loading", "scheduled", "query", "mutation", "server"),
        *("mcp_tool", "mcp_resource", "workflow", "activity"),
    )
)
LABEL_FIELDS: Final = {
    "test": ("label",),
    "forall": ("label",),
    "scheduled": ("interval",),
    "mcp_tool": ("description",),
    "mcp_resource": ("uri",),
    "v0_component": ("id", "image_path"),
}
"""Construct that carries a text -> where its syntax keeps it; the first that is not empty counts."""

_HAS_KEY: Final = {
    "name": frozenset(CONSTRUCTS) - _UNNAMED,
    "label": frozenset(LABEL_FIELDS),
    "params": _CALLED | {"component", "fragment"},
    "returns": _CALLED | {"const"},
}
"""Key of a requirement -> the constructs that have such a thing; the keys of `Part` have a table of their own."""

_Texts = tuple[str, ...]


class Requirement(BaseModel):
    """Declarations that a completion must hold: at least one of the construct that has everything said here."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    construct_: str = Field(alias="construct", description="A name of `CONSTRUCTS`: `function`, `table`, `workflow`.")
    name: str | None = Field(default=None, description="What it declares; an index as `Table.index`.")
    label: str | None = Field(
        default=None, description="Label of a test, interval of a schedule, text of a tool, URI of a resource, v0 id."
    )
    params: _Texts | None = Field(default=None, description="All parameters in order: `int`, or `a: int` by name too.")
    returns: str | None = Field(default=None, description="Return type; of a constant, its declared type.")
    fields: _Texts | None = Field(default=None, description="Fields or entries that must be there, as `Part` says.")
    variants: _Texts | None = Field(default=None, description="Variants that must be there.")
    states: _Texts | None = Field(default=None, description="States that must be there.")
    events: _Texts | None = Field(default=None, description="Transitions that must be there.")
    handlers: _Texts | None = Field(default=None, description="Handlers that must be there.")
    columns: _Texts | None = Field(default=None, description="Columns that must be there.")
    routes: _Texts | None = Field(default=None, description="Routes that must be there.")
    count_at_least: int | None = Field(default=None, ge=1, description="How many such declarations; 1 unless given.")
    contains: _Texts | None = Field(default=None, description="What must occur within it: `Match`, `call:len`, ...")

    @model_validator(mode="after")
    def _fits_its_construct(self) -> "Requirement":
        found_faults: list[str] = []
        if self.construct_ not in CONSTRUCTS:
            advice = did_you_mean(self.construct_, CONSTRUCTS) or f"It is one of: {', '.join(CONSTRUCTS)}."
            found_faults.append(f"construct: found `{self.construct_}`, expected a known construct. {advice}")
        else:
            found_faults += self._misplaced_keys()
        wrong = (find_trait_error(trait) for trait in self.contains or ())
        found_faults += [f"contains: {found_fault}" for found_fault in wrong if found_fault is not None]
        if found_faults:
            raise ValueError("; ".join(found_faults))
        return self

    def parts(self, part: Part) -> tuple[str, ...]:
        """Return the parts of one kind that are asked for."""
        asked: tuple[str, ...] | None = getattr(self, part)
        return asked or ()

    def _misplaced_keys(self) -> Iterator[str]:
        allowed: list[str] = [key for key, constructs in _HAS_KEY.items() if self.construct_ in constructs]
        allowed += [part for part in Part if has_part(part, self.construct_)]
        for key in (*_HAS_KEY, *Part):
            if getattr(self, key) is not None and key not in allowed:
                advice = did_you_mean(key, allowed)
                known = advice or f"It has {', '.join(f'`{name}`' for name in (*allowed, 'contains'))}."
                yield f"{key}: found it with `{self.construct_}`, which has no {key}. {known}"


_MOST_NAMED: Final = 5


def unmet(requirements: Iterable[Requirement], module: Module, source: str) -> tuple[str, ...]:
    """Return a sentence for each requirement that a completion does not meet; by its syntax tree, not by substrings."""
    return tuple(
        sentence for requirement in requirements if (sentence := _find_reason(requirement, module, source)) is not None
    )


def _find_reason(requirement: Requirement, module: Module, source: str) -> str | None:
    alike = [d for d in module.declarations if construct_of(d).name == requirement.construct_]
    named = [d for d in alike if requirement.name is None or requirement.name in names_of(d)]
    faults = [list(_faults(requirement, declaration, source)) for declaration in named]
    num_met = sum(not fault for fault in faults)
    wanted = requirement.count_at_least or 1
    if num_met >= wanted:
        return None
    if not named:
        return f"Asked for {_subject(requirement)}; found {_listing(alike or module.declarations)}."
    wrong = sorted((fault for fault in faults if fault), key=len)
    detail = "; ".join(wrong[0]) if wrong else ""
    if wanted > 1:
        detail = f"found {num_met} that fit" + (f" ({detail})" if detail else "")
        return f"Asked for at least {wanted} times {_subject(requirement)}; {detail}."
    subject = _subject(requirement)
    return f"{subject[0].upper()}{subject[1:]}: {detail}."


def _faults(requirement: Requirement, declaration: Declaration, source: str) -> Iterator[str]:
    if requirement.label is not None and requirement.label != (label := _label(requirement, declaration)):
        yield f"asked for the text `{requirement.label}`, found {_quote([label]) if label else 'none'}"
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
            yield f"asked for {_quote(missing)} within it, found no such thing"


def _param_fault(asked: Sequence[str], declaration: Declaration, source: str) -> Iterator[str]:
    params: tuple[Param, ...] = _function_in(declaration).params
    if len(asked) != len(params) or not all(map(_fits, asked, params, [source] * len(params))):
        written = [format_param(param, source) for param in params]
        wanted = f"the parameters {_quote(asked)}" if asked else "no parameters"
        yield f"asked for {wanted}, found {_quote(written) or 'none'}"


def _fits(asked: str, param: Param, source: str) -> bool:
    written = format_param(param, source) if ":" in asked else text_of(param.type, source) if param.type else ""
    return normalise_spacing(asked) == normalise_spacing(written)


def _type_fault(asked: str, declaration: Declaration, source: str) -> Iterator[str]:
    given = declaration.type if isinstance(declaration, Const) else _function_in(declaration).return_type
    written = text_of(given, source) if given is not None else None
    if written is None or normalise_spacing(written) != normalise_spacing(asked):
        yield f"asked for the type `{asked}`, found {f'`{written}`' if written is not None else 'none'}"


def _part_fault(asked: Sequence[str], part: Part, parts: Sequence[Spellings]) -> Iterator[str]:
    known = {normalise_spacing(spelling) for spellings in parts for spelling in spellings}
    missing = [text for text in asked if normalise_spacing(text) not in known]
    if missing:
        fullest = [max(spellings, key=len) for spellings in parts]
        yield f"asked for the {part} {_quote(missing)}, found {_quote(fullest) or 'none'}"


def _function_in(declaration: Declaration) -> Any:
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
    found = [_describe(declaration) for declaration in declarations[:_MOST_NAMED]]
    more = len(declarations) - _MOST_NAMED
    return ", ".join([*found, *([f"{more} more"] if more > 0 else [])]) or "no declaration"


def _describe(declaration: Declaration) -> str:
    noun, name = noun_of(construct_of(declaration).name), name_of(declaration)
    return f"{noun} `{name}`" if name else noun


def _quote(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)
