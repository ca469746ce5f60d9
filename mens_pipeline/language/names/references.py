"""Names in declarations: what may stand only once, and what must be declared somewhere else."""

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.declarations import (
    Binding,
    Findings,
    Kind,
    ModuleNames,
    declared_in,
    is_page_and_place,
    reactive_bindings,
    value_bindings,
)
from mens_pipeline.language.names.resolver import Resolution, Resolver

_TYPE_KEYS: Final = ("structured_output", "schema", "into")
"""Keys of decorators whose value is the name of a type (G10)."""

ROW_FIELDS: Final = ("_id", "id")
"""What every record of a table has besides its own fields (U5)."""


def resolve(
    module: ast.Module, findings: Findings, assumed: frozenset[str] = frozenset()
) -> tuple[ModuleNames, Resolution]:
    """Find out what a program declares, and what each use of a name refers to.

    Names of `assumed` need not be declared.
    """
    names = declared_in(module, assumed)
    _refuse_duplicates(module, findings)
    resolver = Resolver(names, findings)
    for declaration in module.declarations:
        if findings.is_full:
            break
        function = declaration.function if isinstance(declaration, ast.WRAPPERS) else declaration
        handle = _DECLARATIONS.get(type(function))
        if handle is not None:
            handle(function, resolver)
    resolver.finish()
    return names, resolver.resolution


def _refuse_duplicates(module: ast.Module, findings: Findings) -> None:
    values: dict[str, Binding] = {}
    types: set[str] = set()
    for declaration in module.declarations:
        for binding in value_bindings(declaration):
            _refuse_second_value(binding, values, findings)
        if isinstance(declaration, ast.TypeDef | ast.Table | ast.Url):
            if declaration.name in types:
                _report_second(Code.DUPLICATE_DECLARATION, declaration, declaration.name, "type", findings)
            types.add(declaration.name)


def _refuse_second_value(binding: Binding, values: dict[str, Binding], findings: Findings) -> None:
    """Two types may share a variant; the `main` that a script is made into may have any name beside it (M2)."""
    before = values.setdefault(binding.name, binding)
    if before is binding or before.kind is binding.kind is Kind.VARIANT or is_page_and_place(before, binding):
        return
    node = cast("ast.Node", binding.node)
    is_script = isinstance(node, ast.Function) and findings.name_in(node, node.name).start == node.start
    if not is_script:
        _report_second(Code.DUPLICATE_DECLARATION, node, binding.name, binding.kind, findings)


def _report_second(code: Code, node: ast.Node, name: str, what: str, findings: Findings) -> None:
    message = f"the {what} `{name}` is declared a second time"
    findings.add(code, findings.name_in(node, name), message, "Rename one of them, or remove it.")


def _refuse_twice(nodes: Iterable[Any], what: str, code: Code, findings: Findings) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            _report_second(code, node, node.name, what, findings)
        seen.add(node.name)


def _function(node: ast.Function, resolver: Resolver) -> None:
    resolver.function(node.params, node.return_type, node.body, node.generics)
    for decorator in node.decorators:
        _decorator(decorator, node, resolver)


def _decorator(decorator: ast.Decorator, function: ast.Function, resolver: Resolver) -> None:
    for entry in decorator.arguments:
        if entry.key in _TYPE_KEYS and isinstance(entry.value, str):
            resolver.outside_name(entry.value, entry, "type", resolver.names.types)
    if decorator.condition is None:
        return
    with resolver.scopes.block():
        for param in function.params:
            resolver.scopes.declare(resolver.resolution.declared[id(param)])
        if decorator.name != "@require":
            resolver.declare(decorator, Binding("result", Kind.RESULT, decorator))
        resolver.visit(decorator.condition)
    if decorator.fallback is not None:
        place = resolver.findings.name_in(decorator, decorator.fallback)
        resolver.value_name(decorator.fallback, place, "function")


def _body(node: ast.Workflow | ast.Activity, resolver: Resolver) -> None:
    resolver.function(node.params, node.return_type, node.body)


def _actor(node: ast.Actor, resolver: Resolver) -> None:
    seen: set[str] = set()
    for handler in node.handlers:
        if handler.event in seen:
            _report_second(Code.DUPLICATE_DECLARATION, handler, handler.event, "event", resolver.findings)
        seen.add(handler.event)
        resolver.function(handler.params, handler.return_type, handler.body)


def _const(node: ast.Const, resolver: Resolver) -> None:
    resolver.type(node.type)
    resolver.visit(node.value)


def _fields(fields: Iterable[ast.Field], resolver: Resolver) -> None:
    fields = tuple(fields)
    _refuse_twice(fields, "field", Code.DUPLICATE_FIELD, resolver.findings)
    for field in fields:
        resolver.type(field.type)


def _type(node: ast.TypeDef | ast.Url, resolver: Resolver) -> None:
    _refuse_twice(node.variants, "variant", Code.DUPLICATE_VARIANT, resolver.findings)
    for variant in node.variants:
        _fields(variant.fields, resolver)
    if isinstance(node, ast.TypeDef):
        _fields(node.fields, resolver)


def _index(node: ast.Index, resolver: Resolver) -> None:
    findings, tables = resolver.findings, resolver.names.tables
    table = tables.get(node.table)
    if table is None:
        resolver.outside_name(node.table, node, "table", tables)
        return
    known = (*(field.name for field in table.fields), *ROW_FIELDS)
    for column in node.columns:
        if column not in known:
            message = f"the table `{node.table}` has no field `{column}`"
            place = findings.name_in(node, column)
            findings.add(Code.UNKNOWN_FIELD, place, message, did_you_mean(column, known))


def _component(node: ast.ReactiveComponent, resolver: Resolver) -> None:
    members = [member for member in node.members if member.name is not None]
    _refuse_twice(members, "member", Code.DUPLICATE_DECLARATION, resolver.findings)
    with resolver.scopes.block(in_loop=False):
        resolver.parameters(node.params)
        for binding in reactive_bindings(node):
            resolver.declare(cast("ast.Node", binding.node), binding)
        for member in node.members:
            _member(member, resolver)
        if node.view is not None:
            resolver.visit(node.view)


def _reactive_module(node: ast.ReactiveModule, resolver: Resolver) -> None:
    for member in node.members:
        if member.name is not None:
            resolver.resolution.declared[id(member)] = resolver.names.values[member.name]
        _member(member, resolver)


def _member(member: ast.ReactiveMember, resolver: Resolver) -> None:
    resolver.type(member.type)
    for name in member.depends_on or ():
        resolver.value_name(name, resolver.findings.name_in(member, name))
    resolver.visit(member.body)


def _fragment(node: ast.Fragment, resolver: Resolver) -> None:
    with resolver.scopes.block(in_loop=False):
        resolver.parameters(node.params)
        resolver.visit(node.body)


def _routes(node: ast.Routes, resolver: Resolver) -> None:
    components, functions = _declared_names(resolver, Kind.INTERFACE), _declared_names(resolver, Kind.FUNCTION)
    pending = list(node.entries)
    while pending:
        route = pending.pop()
        pending.extend(route.children)
        resolver.outside_name(route.component, route, "component", components | functions)
        for key, name in route.handlers:
            known = functions if key == "loader" else components | functions
            resolver.outside_name(name, route, key, known)
    for page in (node.not_found, node.error):
        if page is not None:
            resolver.outside_name(page, node, "component", components | functions)


def _declared_names(resolver: Resolver, kind: Kind) -> set[str]:
    """Return the names of a kind that the program itself declares."""
    return {name for name, binding in resolver.names.values.items() if binding.kind is kind}


def _state_machine(node: ast.StateMachine, resolver: Resolver) -> None:
    """Check states and transitions; the rest of a partial machine stands elsewhere."""
    findings = resolver.findings
    _refuse_twice(node.states, "state", Code.DUPLICATE_DECLARATION, findings)
    for state in node.states:
        _refuse_twice(state.fields, "field", Code.DUPLICATE_FIELD, findings)
        for field in state.fields:
            resolver.type(field.type)
    states = [state.name for state in node.states]
    for transition in node.transitions:
        for name in (transition.source, transition.target):
            if name is not None and name not in states and not node.is_partial:
                message = f"the state machine `{node.name}` has no state `{name}`"
                findings.add(Code.UNKNOWN_NAME, findings.name_in(transition, name), message, did_you_mean(name, states))


def _form(node: ast.Form, resolver: Resolver) -> None:
    _refuse_twice(node.fields, "field", Code.DUPLICATE_FIELD, resolver.findings)
    for field in node.fields:
        resolver.type(field.type)
        if field.default is not None:
            resolver.visit(field.default)
    if node.on_submit is not None:
        resolver.outside_name(node.on_submit, node, "function", _declared_names(resolver, Kind.FUNCTION))


def _handlers(node: ast.BackButton | ast.DeepLink | ast.Push, resolver: Resolver) -> None:
    for key, name in node.entries:
        if key.startswith("on_") or key == "fallback":
            resolver.outside_name(name, node, "function", _declared_names(resolver, Kind.FUNCTION))


_DECLARATIONS: Final[dict[type, Callable[[Any, Resolver], None]]] = {
    ast.Function: _function,
    ast.Workflow: _body,
    ast.Activity: _body,
    ast.Actor: _actor,
    ast.Const: _const,
    ast.TypeDef: _type,
    ast.Url: _type,
    ast.Table: lambda node, resolver: _fields(node.fields, resolver),
    ast.V0Component: lambda node, resolver: _fields(node.props, resolver),
    ast.Index: _index,
    ast.ReactiveComponent: _component,
    ast.ReactiveModule: _reactive_module,
    ast.Fragment: _fragment,
    ast.Routes: _routes,
    ast.StateMachine: _state_machine,
    ast.Form: _form,
    ast.BackButton: _handlers,
    ast.DeepLink: _handlers,
    ast.Push: _handlers,
}
"""Declarations with names in them; a script, a token or an import has none."""
