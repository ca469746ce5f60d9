"""One demand of a task, as its manifest states it."""

from collections.abc import Iterator
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mens_pipeline.evaluation.requirements.parts import Part, has_part
from mens_pipeline.evaluation.requirements.traits import trait_mistake
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline.language.suggestions import did_you_mean

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
    """Declarations that an answer must hold: at least one of the construct that has everything said here."""

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
        mistakes = list(self._mistakes())
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    def parts(self, part: Part) -> tuple[str, ...]:
        """Return the parts of one kind that are asked for."""
        asked: tuple[str, ...] | None = getattr(self, part)
        return asked or ()

    def _mistakes(self) -> Iterator[str]:
        if self.construct_ not in CONSTRUCTS:
            advice = did_you_mean(self.construct_, CONSTRUCTS) or f"It is one of: {', '.join(CONSTRUCTS)}."
            yield f"construct: found `{self.construct_}`, expected a known construct. {advice}"
        else:
            yield from self._misplaced_keys()
        for trait in self.contains or ():
            mistake = trait_mistake(trait)
            if mistake is not None:
                yield f"contains: {mistake}"

    def _misplaced_keys(self) -> Iterator[str]:
        allowed = [key for key in (*_HAS_KEY, *Part) if _has_key(self.construct_, key)]
        for key in (*_HAS_KEY, *Part):
            if getattr(self, key) is not None and key not in allowed:
                advice = did_you_mean(key, allowed)
                known = advice or f"It has {', '.join(f'`{name}`' for name in (*allowed, 'contains'))}."
                yield f"{key}: found it with `{self.construct_}`, which has no {key}. {known}"


def _has_key(construct: str, key: str) -> bool:
    return has_part(key, construct) if isinstance(key, Part) else construct in _HAS_KEY[key]
