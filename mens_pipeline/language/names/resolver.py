"""Resolve the names in declarations and bodies to their declarations (B1, B2, B5, B6, C6, K2)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from mens_pipeline.errors import did_you_mean, near_miss
from mens_pipeline.language import ast
from mens_pipeline.language.ast.nodes import children
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.declarations import (
    GENERIC_TYPES,
    METHOD_NAMES,
    PLAIN_TYPES,
    Binding,
    Findings,
    ModuleNames,
    NameKind,
    Scopes,
    Span,
    collect_names,
    is_page_and_place,
    reactive_bindings,
    value_bindings,
)
from mens_pipeline.language.vocabulary import FOREIGN_WORDS, VIEW_TAGS


@dataclass(frozen=True, slots=True)
class Resolution:
    """Bindings of a program, by the `id` of the syntax node.

    `uses` maps a name or view to its binding, `declared` maps a pattern, parameter, loop or decorator to the binding
    that it declares, and `indexes` maps a loop to the binding of its index.
    """

    uses: dict[int, Binding] = field(default_factory=dict)
    declared: dict[int, Binding] = field(default_factory=dict)
    indexes: dict[int, Binding] = field(default_factory=dict)


class Resolver:
    """A walk through bodies that tracks the visible names."""

    def __init__(self, names: ModuleNames, findings: Findings) -> None:
        self.names = names
        self.findings = findings
        self.scopes = Scopes(names.values)
        self.resolution = Resolution()
        self._generics: frozenset[str] = frozenset()
        self.foreign_tables: set[str] = set()
        """Tables used by a program that declares no table: another file of its project declares them."""
        self._unknown_types: list[tuple[str, Span]] = []

    def finish(self) -> None:
        """Report unknown types, except those that name a table of another file."""
        names = self.names
        known = (*names.types, *names.imported, *GENERIC_TYPES, *PLAIN_TYPES)
        for name, place in self._unknown_types:
            if name not in self.foreign_tables:
                self.findings.add(Code.UNKNOWN_TYPE, place, f"no type is called `{name}`", did_you_mean(name, known))

    def function(
        self,
        params: Sequence[ast.Param],
        return_type: ast.Type | None,
        body: Sequence[ast.Statement],
        generics: Iterable[str] = (),
    ) -> None:
        """Resolve a function; a parameter is visible in the defaults of later parameters (C3)."""
        self._generics = frozenset(generics)
        with self.scopes.block(in_loop=False):
            self.parameters(params)
            self.type(return_type)
            self.block(body)
        self._generics = frozenset()

    def parameters(self, params: Sequence[ast.Param]) -> None:
        seen: set[str] = set()
        for param in params:
            self.type(param.type)
            if param.default is not None:
                self.visit(param.default)
            if param.name in seen:
                self.findings.add(Code.DUPLICATE_DECLARATION, param, f"the parameter `{param.name}` occurs twice")
            seen.add(param.name)
            self.declare(param, Binding(param.name, NameKind.PARAMETER, param))

    def declare(self, node: ast.Node, binding: Binding) -> None:
        self.resolution.declared[id(node)] = binding
        self.scopes.declare(binding)

    def block(self, statements: Sequence[ast.Statement]) -> None:
        with self.scopes.block():
            for statement in statements:
                self.visit(statement)

    def visit(self, node: ast.Node) -> None:
        """Resolve an expression or a statement, by the rule for its class or part by part."""
        form = _FORMS.get(type(node))
        if form is not None:
            form(self, node)
            return
        for child in children(node):
            self.visit(child)

    def type(self, node: ast.Type | None) -> None:
        if isinstance(node, ast.NamedType):
            self.type_name(node.name, node)
        elif isinstance(node, ast.GenericType):
            self.type_name(node.name, node, len(node.arguments))
            for argument in node.arguments:
                self.type(argument)
        elif isinstance(node, ast.FunctionType):
            for parameter in node.parameters:
                self.type(parameter)
            self.type(node.return_type)

    def type_name(self, name: str, place: ast.Node, num_arguments: int = 0) -> None:
        """Look up the name of a type that is followed by `num_arguments` types in brackets."""
        names = self.names
        if name in self._generics or name in names.types or name in names.imported or name.isdigit():
            return
        if name in names.assumed and name not in GENERIC_TYPES:
            return
        expected = GENERIC_TYPES.get(name)
        if expected is not None and num_arguments > expected:
            message = f"`{name}` takes {expected} type{'s' * (expected > 1)} in brackets, found {num_arguments}"
            self.findings.add(Code.WRONG_ARGUMENT_COUNT, place, message)
        if name not in GENERIC_TYPES and name not in PLAIN_TYPES:
            self._unknown_types.append((name, Span(place.start, place.start + len(name))))

    def outside_name(self, name: str, holder: ast.Node, what: str, known: Iterable[str]) -> None:
        """Look up a name that may belong to another file: report only likely typos."""
        if name in known or name in self.names.imported or name in self.names.assumed:
            return
        advice = near_miss(name, known)
        if advice is not None:
            message = f"no {what} `{name}` is known here"
            self.findings.add(Code.UNKNOWN_NAME, self.findings.name_in(holder, name), message, advice)

    def value_name(self, name: str, place: ast.Node | Span, what: str = "name") -> Binding | None:
        binding = self.scopes.find(name)
        if binding is None and not self.may_be_foreign(name):
            message = f"no {what} `{name}` is known here"
            self.findings.add(Code.UNKNOWN_NAME, place, message, self._advice(name))
        return binding

    def may_be_foreign(self, name: str) -> bool:
        """Return whether a name may be declared elsewhere: it is assumed, or perhaps a variant of an unknown module."""
        return name in self.names.assumed or (self.names.is_open and name[0].isupper())

    def _advice(self, name: str) -> str | None:
        if name in FOREIGN_WORDS:
            return FOREIGN_WORDS[name]
        if name in self.names.types:
            return "It is a type: write a record as `{ field: value }`, a variant by its own name."
        if name in VIEW_TAGS and len(name) > 1:  # `a`, `b` and `p` are more often something else
            return f"A view takes what it shows in braces: `{name}() {{ ... }}`."
        if name in METHOD_NAMES:
            return f"`{name}` is a method: write `value.{name}(...)`."
        return did_you_mean(name, self.scopes.names())


def _ident(resolver: Resolver, node: ast.Ident) -> None:
    binding = resolver.value_name(node.name, node)
    if binding is not None:
        resolver.resolution.uses[id(node)] = binding


def _binary(resolver: Resolver, node: ast.Binary) -> None:
    chain: list[ast.Expr] = []
    left: ast.Expr = node
    while isinstance(left, ast.Binary):
        chain.append(left.right)
        left = left.left
    resolver.visit(left)
    for right in reversed(chain):
        resolver.visit(right)


def _field(resolver: Resolver, node: ast.FieldAccess) -> None:
    resolver.visit(node.object)
    binding = resolver.resolution.uses.get(id(node.object))
    if binding is None or binding.name != "db" or binding.kind is not NameKind.BUILT_IN:
        return
    if not resolver.names.tables:
        resolver.foreign_tables.add(node.field)
    elif node.field not in resolver.names.tables and not resolver.may_be_foreign(node.field):
        place = resolver.findings.member(node.object, node, node.field)
        advice = did_you_mean(node.field, resolver.names.tables)
        resolver.findings.add(Code.UNKNOWN_NAME, place, f"no table `{node.field}` is declared", advice)


def _object(resolver: Resolver, node: ast.ObjectLit) -> None:
    seen: set[str] = set()
    for entry in node.fields:
        if entry.key in seen:
            resolver.findings.add(Code.DUPLICATE_FIELD, entry, f"the field `{entry.key}` occurs twice")
        seen.add(entry.key)
        resolver.visit(entry.value)


def _side_effect(resolver: Resolver, node: ast.SideEffect) -> None:
    with resolver.scopes.block(in_loop=False):
        resolver.block(node.statements)


def _if(resolver: Resolver, node: ast.If) -> None:
    resolver.visit(node.condition)
    resolver.block(node.then)
    if node.otherwise is not None:
        resolver.block(node.otherwise)


def _for(resolver: Resolver, node: ast.For) -> None:
    resolver.visit(node.iterable)
    with resolver.scopes.block(in_loop=True):
        resolver.declare(node, Binding(node.binding, NameKind.LOOP, node))
        if node.index is not None:
            index = Binding(node.index, NameKind.LOOP, node)
            resolver.resolution.indexes[id(node)] = index
            resolver.scopes.declare(index)
        if node.key is not None:
            resolver.visit(node.key)
        resolver.visit(node.body)


def _match(resolver: Resolver, node: ast.Match) -> None:
    resolver.visit(node.subject)
    for arm in node.arms:
        with resolver.scopes.block():
            pattern(resolver, arm.pattern, NameKind.PATTERN)
            resolver.visit(arm.body)


def _lambda(resolver: Resolver, node: ast.Lambda) -> None:
    with resolver.scopes.block(in_loop=False):
        resolver.parameters(node.params)
        resolver.type(node.return_type)
        resolver.visit(node.body)


def _view(resolver: Resolver, node: ast.View | ast.SelfClosingView) -> None:
    binding = resolver.scopes.find(node.tag)
    if binding is None and node.tag not in VIEW_TAGS:
        binding = resolver.value_name(node.tag, Span(node.start, node.start + len(node.tag)))
    if binding is not None:
        resolver.resolution.uses[id(node)] = binding
    for attribute in node.attributes:
        resolver.visit(attribute.value)
    if isinstance(node, ast.View):
        for child in node.children:
            resolver.visit(child)


def _let(resolver: Resolver, node: ast.Let) -> None:
    resolver.type(node.type)
    resolver.visit(node.value)
    pattern(resolver, node.pattern, NameKind.VARIABLE, mutable=node.mutable)


def pattern(resolver: Resolver, node: ast.Pattern, kind: NameKind, *, mutable: bool = False) -> None:
    """Declare the names of a pattern; a variant without payload is a test, not a name (K2)."""
    if isinstance(node, ast.IdentPattern):
        if resolver.names.is_variant(node.name):
            return
        if node.name[0].isupper() and kind is NameKind.PATTERN and not resolver.may_be_foreign(node.name):
            _unknown_variant(resolver, node.name, node)
        resolver.declare(node, Binding(node.name, kind, node, mutable=mutable))
    elif isinstance(node, ast.ConstructorPattern):
        is_known = resolver.names.is_variant(node.name) or node.name in resolver.names.assumed
        if not is_known and not resolver.names.is_open:
            _unknown_variant(resolver, node.name, Span(node.start, node.start + len(node.name)))
        for part in node.fields:
            pattern(resolver, part, kind, mutable=mutable)
    elif isinstance(node, ast.TuplePattern):
        for part in node.elements:
            pattern(resolver, part, kind, mutable=mutable)


def _unknown_variant(resolver: Resolver, name: str, place: ast.Node | Span) -> None:
    advice = did_you_mean(name, resolver.names.variants)
    resolver.findings.add(Code.UNKNOWN_VARIANT, place, f"no type has a variant `{name}`", advice)


def _assign(resolver: Resolver, node: ast.Assign) -> None:
    is_compound = isinstance(node.value, ast.Binary) and node.value.left is node.target
    resolver.visit(node.value)
    if not is_compound:
        resolver.visit(node.target)
    root = node.target
    while isinstance(root, ast.FieldAccess | ast.IndexAccess):
        root = root.object
    if not isinstance(root, ast.Ident):
        message = "only names, their fields and their elements can be assigned to"
        resolver.findings.add(Code.NOT_MUTABLE, root, message)
        return
    binding = resolver.scopes.find(root.name)
    if binding is not None and not binding.mutable:
        advice = f"Write `let mut {root.name}`." if binding.kind is NameKind.VARIABLE else None
        message = f"the {binding.kind} `{root.name}` cannot be assigned to"
        resolver.findings.add(Code.NOT_MUTABLE, root, message, advice)


def _while(resolver: Resolver, node: ast.While) -> None:
    resolver.visit(node.condition)
    with resolver.scopes.block(in_loop=True):
        resolver.block(node.body)


def _loop(resolver: Resolver, node: ast.Loop) -> None:
    with resolver.scopes.block(in_loop=True):
        resolver.block(node.body)


def _loop_control(resolver: Resolver, node: ast.Break | ast.Continue) -> None:
    if not resolver.scopes.in_loop:
        word = "break" if isinstance(node, ast.Break) else "continue"
        resolver.findings.add(Code.OUTSIDE_LOOP, node, f"`{word}` is not in a loop of its function")


_FORMS: Final[dict[type, Callable[[Resolver, Any], None]]] = {
    ast.Ident: _ident,
    ast.Binary: _binary,
    ast.FieldAccess: _field,
    ast.ObjectLit: _object,
    ast.Block: lambda resolver, node: resolver.block(node.statements),
    ast.SideEffect: _side_effect,
    ast.If: _if,
    ast.For: _for,
    ast.Match: _match,
    ast.Lambda: _lambda,
    ast.View: _view,
    ast.SelfClosingView: _view,
    ast.Let: _let,
    ast.Assign: _assign,
    ast.While: _while,
    ast.Loop: _loop,
    ast.Break: _loop_control,
    ast.Continue: _loop_control,
}
"""Syntax that declares or uses names; all other syntax is resolved part by part."""


ROW_FIELDS: Final = ("_id", "id")
"""Fields of every record of a table, besides the declared ones (U5)."""


def resolve(
    module: ast.Module, findings: Findings, assumed: frozenset[str] = frozenset()
) -> tuple[ModuleNames, Resolution]:
    """Collect the names of a program, and resolve each use; `assumed` names need no declaration."""
    names = collect_names(module, assumed)
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
    for declaration in module.declarations:
        for binding in value_bindings(declaration):
            _refuse_second_value(binding, values, findings)
    types = (one for one in module.declarations if isinstance(one, ast.TypeDef | ast.Table | ast.Url))
    _refuse_twice(types, "type", Code.DUPLICATE_DECLARATION, findings)


def _refuse_second_value(binding: Binding, values: dict[str, Binding], findings: Findings) -> None:
    """Report a second declaration; types may share variants, and a script may declare its own `main` (M2)."""
    before = values.setdefault(binding.name, binding)
    if before is binding or before.kind is binding.kind is NameKind.VARIANT or is_page_and_place(before, binding):
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
        name = node.event if isinstance(node, ast.Handler) else node.name
        if name in seen:
            _report_second(code, node, name, what, findings)
        seen.add(name)


def _function(node: ast.Function, resolver: Resolver) -> None:
    resolver.function(node.params, node.return_type, node.body, node.generics)
    for decorator in node.decorators:
        _decorator(decorator, node, resolver)


def _decorator(decorator: ast.Decorator, function: ast.Function, resolver: Resolver) -> None:
    for entry in decorator.arguments:
        if entry.key in {"structured_output", "schema", "into"} and isinstance(entry.value, str):
            resolver.outside_name(entry.value, entry, "type", resolver.names.types)
    if decorator.condition is None:
        return
    with resolver.scopes.block():
        for param in function.params:
            resolver.scopes.declare(resolver.resolution.declared[id(param)])
        if decorator.name != "@require":
            resolver.declare(decorator, Binding("result", NameKind.RESULT, decorator))
        resolver.visit(decorator.condition)
    if decorator.fallback is not None:
        place = resolver.findings.name_in(decorator, decorator.fallback)
        resolver.value_name(decorator.fallback, place, "function")


def _actor(node: ast.Actor, resolver: Resolver) -> None:
    _refuse_twice(node.handlers, "event", Code.DUPLICATE_DECLARATION, resolver.findings)
    for handler in node.handlers:
        resolver.function(handler.params, handler.return_type, handler.body)


def _const(node: ast.Const, resolver: Resolver) -> None:
    resolver.type(node.type)
    resolver.visit(node.value)


def _fields(fields: Iterable[ast.Field], resolver: Resolver) -> None:
    fields = tuple(fields)
    _refuse_twice(fields, "field", Code.DUPLICATE_FIELD, resolver.findings)
    for one in fields:
        resolver.type(one.type)


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
    components, functions = _declared_names(resolver, NameKind.INTERFACE), _declared_names(resolver, NameKind.FUNCTION)
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


def _declared_names(resolver: Resolver, kind: NameKind) -> set[str]:
    return {name for name, binding in resolver.names.values.items() if binding.kind is kind}


def _state_machine(node: ast.StateMachine, resolver: Resolver) -> None:
    findings = resolver.findings
    _refuse_twice(node.states, "state", Code.DUPLICATE_DECLARATION, findings)
    for state in node.states:
        _refuse_twice(state.fields, "field", Code.DUPLICATE_FIELD, findings)
        for entry in state.fields:
            resolver.type(entry.type)
    states = [state.name for state in node.states]
    for transition in node.transitions:
        for name in (transition.source, transition.target):
            if name is not None and name not in states and not node.is_partial:
                message = f"the state machine `{node.name}` has no state `{name}`"
                findings.add(Code.UNKNOWN_NAME, findings.name_in(transition, name), message, did_you_mean(name, states))


def _form(node: ast.Form, resolver: Resolver) -> None:
    _refuse_twice(node.fields, "field", Code.DUPLICATE_FIELD, resolver.findings)
    for entry in node.fields:
        resolver.type(entry.type)
        if entry.default is not None:
            resolver.visit(entry.default)
    if node.on_submit is not None:
        resolver.outside_name(node.on_submit, node, "function", _declared_names(resolver, NameKind.FUNCTION))


def _handlers(node: ast.BackButton | ast.DeepLink | ast.Push, resolver: Resolver) -> None:
    for key, name in node.entries:
        if key.startswith("on_") or key == "fallback":
            resolver.outside_name(name, node, "function", _declared_names(resolver, NameKind.FUNCTION))


_DECLARATIONS: Final[dict[type, Callable[[Any, Resolver], None]]] = {
    ast.Function: _function,
    **dict.fromkeys(
        (ast.Workflow, ast.Activity),
        lambda node, resolver: resolver.function(node.params, node.return_type, node.body),
    ),
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
    **dict.fromkeys((ast.BackButton, ast.DeepLink, ast.Push), _handlers),
}
"""Declarations that contain names; imports and design tokens contain no names."""
