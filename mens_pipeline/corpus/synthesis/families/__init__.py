"""Every family of templates."""

from typing import Final

from mens_pipeline.corpus.synthesis.families import (
    combinations,
    components,
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
    tables,
    tests,
    tools,
    types,
    views,
    workflows,
)
from mens_pipeline.corpus.synthesis.sample import Family

FAMILIES: Final[tuple[Family, ...]] = (
    *modules.FAMILIES,
    *functions.FAMILIES,
    *records.FAMILIES,
    *types.FAMILIES,
    *tests.FAMILIES,
    *tables.FAMILIES,
    *components.FAMILIES,
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
