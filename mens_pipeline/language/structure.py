"""Structure of a program without its own names and literals: renamed copies are equal."""

import hashlib
from dataclasses import dataclass
from typing import Final

from mens_pipeline.language import ast
from mens_pipeline.language.ast.base import field_names, walk

_USES: Final = (
    ast.Argument,
    ast.Attribute,
    ast.ConstructorPattern,
    ast.Decorator,
    ast.GenericType,
    ast.Ident,
    ast.NamedType,
    ast.SelfClosingView,
    ast.View,
)
"""Nodes that use a name and do not declare it."""

_DECLARING: Final = frozenset(("name", "binding", "index", "alias", "event", "generics", "table"))
"""Fields in which all other nodes declare a name."""

_WORDING: Final = frozenset(
    (
        *("label", "description", "uri", "path", "interval", "image_path", "id", "error_message"),
        *("peers", "minimum", "maximum", "values"),
    )
)
"""Fields that hold numbers, or words for people or places, which a copy would change as it changes literals."""

_LITERALS: Final = (ast.IntLit, ast.FloatLit, ast.DecimalLit, ast.StringLit, ast.BoolLit, ast.LiteralPattern)

_FIXED: Final = frozenset(("op", "role", "kind", "root", "category", "strategy"))
"""Fields that hold a word of the language, which is no name even where a piece declares one that looks like it."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The structure of a piece of syntax.

    `digest` is the SHA-256 over its nodes with names numbered and literals left out, hexadecimal; two pieces of few
    nodes are easily alike by chance.
    """

    digest: str
    num_nodes: int


def structure_of(root: ast.Node) -> Structure:
    """Return the structure of a declaration or a module.

    Two pieces have the same structure when one becomes the other by renaming what it declares and by changing the
    values of literals, comments, spacing and redundant brackets. Names of built-in types, methods, tags, attributes and
    operators are part of the structure.
    """
    return _structure(root, _declared_names(root))


def declaration_structures(module: ast.Module) -> tuple[Structure, ...]:
    """Return the structure of each declaration of a module; a name that any of them declares is no part of it."""
    declared = _declared_names(module)
    return tuple(_structure(declaration, declared) for declaration in module.declarations)


def _structure(root: ast.Node, declared: frozenset[str]) -> Structure:
    numbers: dict[str, int] = {}
    digest = hashlib.sha256()
    num_nodes = 0
    pending: list[object] = [root]
    while pending:
        item = pending.pop()
        if isinstance(item, ast.Node):
            num_nodes += 1
            pending.extend(reversed(_parts(item)))
        elif isinstance(item, tuple):
            pending.extend((_Mark(")"), *reversed(item), _Mark("(")))
        elif isinstance(item, str) and item in declared:
            digest.update(b"\0%d" % numbers.setdefault(item, len(numbers)))
        else:
            digest.update(f"\0{item!r}".encode())
    return Structure(digest.hexdigest(), num_nodes)


@dataclass(frozen=True, slots=True)
class _Mark:
    """Something that is no name, whatever it looks like."""

    text: str


def _parts(node: ast.Node) -> list[object]:
    """Return the parts of a node, its kind first."""
    parts: list[object] = [_Mark(type(node).__name__)]
    for name in field_names(node):
        if name in {"start", "end"}:
            continue
        value = getattr(node, name)
        is_given = isinstance(node, ast.DecoratorArgument) and name == "value"
        if is_given or name in _WORDING or isinstance(node, _LITERALS):
            parts.append(_Mark(type(value).__name__))
        elif name in _FIXED and isinstance(value, str):
            parts.append(_Mark(value))
        else:
            parts.append(value)
    return parts


def _declared_names(root: ast.Node) -> frozenset[str]:
    """Return the names that a piece declares: of types, functions, fields, variants, parameters, variables, states."""
    names: set[str] = set()
    for node in walk(root):
        if isinstance(node, _USES):
            continue
        for field in _DECLARING.intersection(field_names(node)):
            value = getattr(node, field)
            values = value if isinstance(value, tuple) else (value,)
            names.update(name for name in values if isinstance(name, str))
    return frozenset(names)
