"""Every family of templates."""

from pathlib import Path
from typing import Final

from mens_pipeline.corpus.synthesis.families import (
    combinations,
    durable,
    endpoints,
    fullstack,
    functions,
    machines,
    mobile,
    modules,
    pages,
    reactive,
    records,
    servers,
    tests,
    tools,
    types,
    views,
    workflows,
)
from mens_pipeline.corpus.synthesis.families.templates import families_in
from mens_pipeline.corpus.synthesis.sample import Family

_TEMPLATES: Final = tuple(families_in(Path(__file__).parent))


def _of(file: str) -> tuple[Family, ...]:
    return tuple(family for family in _TEMPLATES if f"/{file}.vox.jinja:" in family.place)


FAMILIES: Final[tuple[Family, ...]] = (
    *modules.FAMILIES,
    *functions.FAMILIES,
    *records.FAMILIES,
    *types.FAMILIES,
    *tests.FAMILIES,
    *_of("tables"),
    *_of("components"),
    *views.FAMILIES,
    *endpoints.FAMILIES,
    *servers.FAMILIES,
    *pages.FAMILIES,
    *mobile.FAMILIES,
    *reactive.FAMILIES,
    *machines.FAMILIES,
    *durable.FAMILIES,
    *workflows.FAMILIES,
    *tools.FAMILIES,
    *combinations.FAMILIES,
    *fullstack.FAMILIES,
)
"""All families, the easy ones first; their names are unique."""
