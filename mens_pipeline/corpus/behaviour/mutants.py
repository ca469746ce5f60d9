"""Mutants, which change a function's body and most likely its behaviour, and probes, which record branches."""

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from decimal import Decimal
from random import Random
from typing import Any, Final, TypeVar

from mens_pipeline.language import ast

PROBE: Final = "branch reached"
"""The function that probes call; no program can contain this name."""

_OPERATORS: Final[dict[str, tuple[str, ...]]] = {
    "Lt": ("Lte", "Gte"),
    "Lte": ("Lt", "Gt"),
    "Gt": ("Gte", "Lte"),
    "Gte": ("Gt", "Lt"),
    "Is": ("Isnt",),
    "Isnt": ("Is",),
    "And": ("Or",),
    "Or": ("And",),
    "Add": ("Sub",),
    "Sub": ("Add",),
    "Mul": ("Add",),
    "Div": ("Mul",),
    "Mod": ("Div",),
}
_METHODS: Final = {
    name: other
    for pair in (
        ("to_upper", "to_lower"),
        ("starts_with", "ends_with"),
        ("trim_start", "trim_end"),
        ("is_some", "is_none"),
        ("is_ok", "is_err"),
        ("min", "max"),
        ("floor", "ceil"),
        ("first", "last"),
    )
    for name, other in (pair, pair[::-1])
}
"""Pairs of methods with the same types of arguments and result."""

_Path = tuple[Any, ast.Node, str, int | None] | None
"""A position in the tree: the parent's path, the parent, its field, and the index in that field."""


def build_mutants(declaration: ast.Declaration, most: int, seed: str) -> tuple[ast.Declaration, ...]:
    """Return copies of a function with one change each, spread over the kinds of change."""
    kinds: dict[type, list[tuple[_Path, ast.Node]]] = {}
    for path, node in _sites(declaration):
        for changed in _changes(node):
            kinds.setdefault(type(node), []).append((path, changed))
    random = Random(seed)  # noqa: S311 - a reproducible draw, no secret
    for sites in kinds.values():
        random.shuffle(sites)
    chosen: list[tuple[_Path, ast.Node]] = []
    while kinds and len(chosen) < most:
        chosen += [sites.pop() for sites in kinds.values()]
        kinds = {kind: sites for kind, sites in kinds.items() if sites}
    return tuple(_rebuild(path, changed) for path, changed in chosen[:most])


def _sites(declaration: ast.Declaration) -> Iterator[tuple[_Path, ast.Node]]:
    function: Any = getattr(declaration, "function", declaration)
    root: _Path = None if function is declaration else (None, declaration, "function", None)
    pending: list[tuple[_Path, ast.Node]] = [((root, function, "body", i), s) for i, s in enumerate(function.body)]
    yield root, function
    while pending:
        path, node = pending.pop()
        yield path, node
        for name in _field_names(node):
            value = getattr(node, name)
            if isinstance(value, ast.Node):
                pending.append(((path, node, name, None), value))
            elif isinstance(value, tuple):
                pending += [((path, node, name, i), item) for i, item in enumerate(value) if isinstance(item, ast.Node)]


def _rebuild(path: _Path, node: ast.Node) -> Any:
    while path is not None:
        above, parent, name, index = path
        value: object = node
        if index is not None:
            items = getattr(parent, name)
            value = (*items[:index], node, *items[index + 1 :])
        node = replace(parent, **{name: value})  # type: ignore[arg-type]
        path = above
    return node


_NO_CODE: Final = frozenset(("start", "end", "type", "return_type"))
_FIELD_NAMES: Final[dict[str, tuple[str, ...]]] = {}
"""Class of node -> its fields that may contain code."""


def _field_names(node: ast.Node) -> tuple[str, ...]:
    kind = type(node).__name__
    if kind not in _FIELD_NAMES:
        _FIELD_NAMES[kind] = tuple(field.name for field in fields(node) if field.name not in _NO_CODE)
    return _FIELD_NAMES[kind]


def _changes(node: Any) -> Iterator[ast.Node]:
    if (change := _CHANGES.get(type(node))) is not None:
        yield from change(node)
    for name in ("body", "then", "otherwise", "statements"):
        statements = getattr(node, name, None)
        if isinstance(statements, tuple) and len(statements) > 1:
            for index in range(len(statements) - 1):
                yield replace(node, **{name: statements[:index] + statements[index + 1 :]})


def _binary(node: ast.Binary) -> Iterator[ast.Node]:
    if node.op == "Add" and (isinstance(node.left, ast.StringLit) or isinstance(node.right, ast.StringLit)):
        yield replace(node, left=node.right, right=node.left)
        return
    for op in _OPERATORS.get(node.op, ()):
        yield replace(node, op=op)


def _number(node: Any) -> Iterator[ast.Node]:
    yield replace(node, value=node.value + 1)
    if node.value:
        yield replace(node, value=node.value - 1)


def _if(node: ast.If) -> Iterator[ast.Node]:
    yield replace(node, then=node.otherwise or (), otherwise=node.then)
    yield replace(node, then=node.otherwise or ())
    if node.otherwise is not None:
        yield replace(node, otherwise=node.then)


def _match(node: ast.Match) -> Iterator[ast.Node]:
    for index in range(len(node.arms) - 1):
        first, second = node.arms[index : index + 2]
        swapped = (replace(first, body=second.body), replace(second, body=first.body))
        yield replace(node, arms=node.arms[:index] + swapped + node.arms[index + 2 :])


_CHANGES: Final[dict[type, Callable[[Any], Iterable[ast.Node]]]] = {
    ast.Binary: _binary,
    ast.IntLit: _number,
    ast.FloatLit: _number,
    ast.DecimalLit: lambda node: [replace(node, text=str(Decimal(node.text) + 1))],
    ast.StringLit: lambda node: [replace(node, value=node.value + "x")],
    ast.BoolLit: lambda node: [replace(node, value=not node.value)],
    ast.Unary: lambda node: [node.operand],
    ast.LiteralPattern: lambda node: [replace(node, value=node.value + (1 if isinstance(node.value, int) else "x"))],
    ast.If: _if,
    ast.Match: _match,
    ast.MethodCall: lambda node: [replace(node, method=_METHODS[node.method])] if node.method in _METHODS else [],
}

Syntax = TypeVar("Syntax", bound=ast.Node)


class Probes:
    """Inserts a numbered probe at the start of each branch; recurses as deep as the tree."""

    def __init__(self) -> None:
        self.number = 0

    def inside(self, node: Syntax) -> Syntax:
        """Return a copy of a function that also calls `PROBE` with a number at the start of each branch."""
        changed: dict[str, Any] = {}
        for name in _field_names(node):
            value: Any = getattr(node, name)
            if isinstance(value, ast.Node):
                probe = self._probe(value) if name == "body" and isinstance(node, ast.MatchArm | ast.For) else None
                new: Any = self.inside(value)
                if probe is not None:
                    block = (probe, ast.ExprStatement(value.start, value.end, new))
                    changed[name] = ast.Block(value.start, value.end, block)
                elif new is not value:
                    changed[name] = new
            elif isinstance(value, tuple) and value and isinstance(value[0], ast.Node):
                items = tuple(map(self.inside, value))
                if any(map(operator.is_not, items, value)):
                    changed[name] = items
        if isinstance(node, ast.If):
            changed["then"] = (self._probe(node), *changed.get("then", node.then))
            changed["otherwise"] = (self._probe(node), *changed.get("otherwise", node.otherwise or ()))
        elif isinstance(node, ast.While | ast.Loop):
            changed["body"] = (self._probe(node), *changed.get("body", node.body))
        return replace(node, **changed) if changed else node

    def _probe(self, node: ast.Node) -> ast.Statement:
        start, end = node.start, node.end
        self.number += 1
        number = ast.Argument(start, end, None, ast.IntLit(start, end, self.number))
        return ast.ExprStatement(start, end, ast.Call(start, end, ast.Ident(start, end, PROBE), (number,)))
