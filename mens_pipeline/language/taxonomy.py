"""Kinds of declaration, their names and their difficulty."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mens_pipeline.language.ast.declarations import Declaration, Endpoint, Module

DEFAULT_DIFFICULTY: Final = 5
"""Difficulty of a text without declarations."""


@dataclass(frozen=True, slots=True)
class Construct:
    """A construct that a model can learn; `kind` is the kind of its declarations (A2).

    `name` is more specific than `histogram_name` (A10): `workflow`, `query`. `difficulty` ranges from 1 (easy) to 10,
    and gives the order of upstream's curriculum.
    """

    name: str
    kind: str
    histogram_name: str
    difficulty: int


CONSTRUCTS: Final[Mapping[str, Construct]] = {
    construct.name: construct
    for construct in (
        Construct("import", "Import", "import", 1),
        Construct("const", "Const", "other", 1),
        Construct("function", "Function", "fn", 2),
        Construct("type", "TypeDef", "type", 2),
        Construct("test", "Test", "test", 2),
        Construct("forall", "Forall", "test", 3),
        Construct("component", "ReactiveComponent", "component", 3),
        Construct("fragment", "Fragment", "other", 3),
        Construct("v0_component", "V0Component", "v0", 3),
        Construct("table", "Table", "table", 3),
        Construct("index", "Index", "index", 3),
        Construct("loading", "Loading", "other", 3),
        Construct("design_tokens", "Tokens", "other", 3),
        Construct("query", "Endpoint", "other", 4),
        Construct("mutation", "Endpoint", "other", 4),
        Construct("server", "Endpoint", "other", 4),
        Construct("routes", "Routes", "routes", 4),
        Construct("url", "Url", "url", 4),
        Construct("scheduled", "Scheduled", "other", 4),
        Construct("form", "Form", "other", 4),
        Construct("back_button", "BackButton", "other", 5),
        Construct("deep_link", "DeepLink", "other", 5),
        Construct("push", "Push", "other", 5),
        Construct("reactive_module", "ReactiveModule", "other", 5),
        Construct("state_machine", "StateMachine", "state_machine", 5),
        Construct("actor", "Actor", "other", 5),
        Construct("activity", "Activity", "other", 7),
        Construct("workflow", "Workflow", "other", 7),
        Construct("mcp_tool", "McpTool", "mcp_tool", 8),
        Construct("mcp_resource", "McpResource", "mcp_resource", 8),
    )
}
"""Every construct that the parser can produce, the denominator of coverage."""

_BY_KIND: Final = {construct.kind: construct for construct in CONSTRUCTS.values()}


def kind_of(declaration: Declaration) -> str:
    """Return the declaration kind of A2, such as `TypeDef`."""
    return type(declaration).__name__


def construct_of(declaration: Declaration) -> Construct:
    """Return the construct of a declaration; endpoints differ by their kind."""
    return CONSTRUCTS[declaration.kind] if isinstance(declaration, Endpoint) else _BY_KIND[kind_of(declaration)]


def histogram(module: Module) -> dict[str, int]:
    """Count declarations by the histogram name of their construct, names sorted (A10)."""
    return dict(sorted(Counter(construct_of(d).histogram_name for d in module.declarations).items()))


def difficulty(module: Module) -> int:
    """Return the difficulty of the hardest declaration, 1 to 10; 5 without declarations."""
    return max((construct_of(d).difficulty for d in module.declarations), default=DEFAULT_DIFFICULTY)
