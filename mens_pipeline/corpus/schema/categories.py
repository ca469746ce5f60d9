"""The one table of categories: every construct of the language, the tasks that are no construct, and other names."""

from typing import Final

from mens_pipeline.language.suggestions import did_you_mean
from mens_pipeline.language.taxonomy import CONSTRUCTS

TASKS: Final = (
    "agent_answer",
    "asr_refine",
    "documentation",
    "general",
    "speech_to_code",
    "tool_trace",
    "workflow_trace",
)
"""Categories of rows that do not show one construct."""

CATEGORIES: Final = frozenset((*CONSTRUCTS, *TASKS))
OTHER_NAMES: Final = {
    "const_decl": "const",
    "docs": "documentation",
    "endpoint": "server",
    "enum": "type",
    "fn": "function",
    "func": "function",
    "search_index": "index",
    "server_fn": "server",
    "struct": "type",
    "type_def": "type",
    "vector_index": "index",
}
"""Category in the data of other toolchains -> our name of it."""


def category_named(name: str) -> str:
    """Return the category that a name means; a name that means none is returned as it is."""
    return OTHER_NAMES.get(name, name)


def unknown_category(name: str) -> str | None:
    """Describe what is wrong with a category; None for one of the table."""
    if name in CATEGORIES:
        return None
    near = did_you_mean(name, CATEGORIES)
    return f"category {name!r} is none{f'. {near}' if near else ''}"
