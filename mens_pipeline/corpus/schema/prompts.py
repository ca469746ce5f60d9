"""Describe a declaration in a prompt: its construct, its name and its shape in plain words."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from mens_pipeline.language import ast

SYSTEM_PROMPT: Final = "You write Vox. Answer with code alone."
"""The system prompt of every request in training, evaluation and serving."""

_NOUNS: Final[dict[str, str]] = {
    "import": "an import",
    "const": "a module-level constant",
    "function": "a function",
    "type": "a type",
    "test": "a test",
    "forall": "a property test",
    "component": "a component",
    "fragment": "a fragment",
    "v0_component": "a v0 component stub",
    "table": "a table",
    "index": "a table index",
    "loading": "a loading view",
    "design_tokens": "a block of design tokens",
    "query": "a query endpoint",
    "mutation": "a mutation endpoint",
    "server": "a server endpoint",
    "routes": "a routes block",
    "url": "a url type",
    "scheduled": "a scheduled function",
    "form": "a form",
    "back_button": "a back button block",
    "deep_link": "a deep link block",
    "push": "a push notification block",
    "reactive_module": "the reactive members of a `.vox.ui` file",
    "state_machine": "a state machine",
    "actor": "an actor",
    "activity": "an activity",
    "workflow": "a workflow",
    "mcp_tool": "an MCP tool",
    "mcp_resource": "an MCP resource",
}
"""Construct -> the noun that a person would use for it."""

_IN_BACKTICKS: Final = re.compile(r"`[^`]*`")
_WORD: Final = re.compile(r"[^\W\d]\w*")


def mentioned_names(prompt: str) -> set[str]:
    """Return the words of a request that may be names of existing code.

    These are words in backticks, all words after the first blank line, where code is shown, and words with capitals,
    digits or underscores.
    """
    sentence, _, shown = prompt.partition("\n\n")
    code = " ".join([*_IN_BACKTICKS.findall(prompt), shown])
    words = {word for word in _WORD.findall(sentence) if not (word.isalpha() and word.islower())}
    return words | words_of_code(code)


def collapse_spaces(text: str) -> str:
    """Join the words of a text with single spaces."""
    return " ".join(text.split())


def text_of(node: ast.Node, source: str) -> str:
    """Return the source text of a piece of syntax, on one line."""
    return collapse_spaces(source[node.start : node.end])


def words_of_code(text: str) -> set[str]:
    """Return all words of a text that could be names, including keywords and words in comments."""
    return set(_WORD.findall(text))


def noun_of(construct: str) -> str:
    """Return the noun for a construct, with its article."""
    return _NOUNS[construct]


def describe_shape(declaration: ast.Declaration, source: str) -> str:
    """Describe the parts of a declaration, as the end of a sentence; empty if there is nothing to add.

    Returns:
        Text such as ``with the signature `(a: int) to str` `` or ``with the fields `id: int`, `name: str` ``.
    """
    wrapped = getattr(declaration, "function", declaration)
    parts = [form(declaration, source) for kind, form in _SHAPES if isinstance(declaration, kind)]
    if isinstance(wrapped, ast.Function | ast.Workflow | ast.Activity) and not isinstance(declaration, ast.Test):
        parts.append(f"with the signature `{format_signature(wrapped, source)}`")
    return ", ".join(part for part in parts if part)


def format_signature(declaration: ast.Function | ast.Workflow | ast.Activity, source: str) -> str:
    """Return parameters, effects and return type as written."""
    params = ", ".join(source[param.start : param.end] for param in declaration.params)
    named = declaration.effects if isinstance(declaration, ast.Function) else ()
    effects = f" uses {', '.join(named)}" if named else ""
    returned = declaration.return_type
    result = f" to {source[returned.start : returned.end]}" if returned is not None else ""
    return f"({params}){effects}{result}"


def _list(what: str, items: Sequence[str]) -> str:
    return f"with the {what} {', '.join(f'`{item}`' for item in items)}" if items else ""


def _format_all(nodes: Sequence[ast.Node], source: str) -> list[str]:
    return [text_of(node, source) for node in nodes]


_SHAPES: Final[tuple[tuple[type, Callable[[Any, str], str]], ...]] = (
    (ast.Import, lambda d, _: _list("paths", [".".join(path.segments) for path in d.paths])),
    (ast.Const, lambda d, s: f"of the type `{s[d.type.start : d.type.end]}`" if d.type else ""),
    (ast.TypeDef, lambda d, s: _list("fields", _format_all(d.fields, s))),
    (ast.TypeDef, lambda d, s: "" if d.fields else _list("variants", _format_all(d.variants, s))),
    (ast.Table, lambda d, s: _list("fields", _format_all(d.fields, s))),
    (ast.Index, lambda d, _: _list("columns", d.columns)),
    (ast.ReactiveComponent, lambda d, s: _list("parameters", _format_all(d.params, s))),
    (ast.ReactiveComponent, lambda d, _: _list("state", [m.name for m in d.members if m.role == "state"])),
    (ast.ReactiveModule, lambda d, _: _list("members", [m.name or m.role for m in d.members])),
    (ast.Fragment, lambda d, s: _list("parameters", _format_all(d.params, s))),
    (ast.V0Component, lambda d, s: _list("properties", _format_all(d.props, s))),
    (ast.Routes, lambda d, _: _list("paths", [route.path for route in d.entries])),
    (ast.Url, lambda d, s: _list("variants", _format_all(d.variants, s))),
    (ast.StateMachine, lambda d, _: _list("states", [state.name for state in d.states])),
    (ast.StateMachine, lambda d, _: _list("events", list(dict.fromkeys(t.event for t in d.transitions)))),
    (ast.Actor, lambda d, _: _list("handlers", [handler.event for handler in d.handlers])),
    (ast.Form, lambda d, _: _list("fields", [field.name for field in d.fields])),
    (ast.Tokens, lambda d, _: _list("tokens", [f"{token.category} {token.name}" for token in d.entries])),
    (ast.Test, lambda d, _: f"that checks {d.label!r}" if d.label else ""),
    (ast.Forall, lambda d, _: f"that checks {d.label!r}" if d.label else ""),
    (ast.Scheduled, lambda d, _: f"that runs every `{d.interval}`"),
    (ast.McpTool, lambda d, _: f"described as {d.description!r}" if d.description else ""),
    (ast.McpResource, lambda d, _: f"at `{d.uri}`, described as {d.description!r}"),
)
"""Kind of declaration -> a description of a part, in order."""
