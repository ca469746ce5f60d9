"""Compile views and components for hidden tests (U6): their content, and the state that handlers change."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mens_pipeline.language import ast
from mens_pipeline.language.interpreter.compiler.calls import FunctionValue, charge_body, compile_function
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, ModuleScope, Scope
from mens_pipeline.language.interpreter.library.views import CellValue, Component, Element
from mens_pipeline.language.interpreter.results import ErrorKind, Refusal, VoxError
from mens_pipeline.language.interpreter.values import NONE, Refused, Value


def view(node: ast.View | ast.SelfClosingView, scope: Scope) -> Code:
    """Compile a view: mount a component of the program, or create an element with its children."""
    attributes = [(attribute.name, _attribute(attribute, scope)) for attribute in node.attributes]
    children = scope.codes(node.children) if isinstance(node, ast.View) else []
    known, machine = scope.module.names, scope.module.machine

    def run(frame: Frame) -> Value:
        given = {name: code(frame) for name, code in attributes}
        target = known.get(node.tag)
        if type(target) is Component:
            try:
                return target.mount(given)
            except VoxError as error:
                raise scope.add_place(error, node) from None
        values = [code(frame) for code in children]
        machine.allocate(1 + len(values))
        return Element(node.tag, given, lambda: values)

    return run


def _attribute(attribute: ast.Attribute, scope: Scope) -> Code:
    """Compile an attribute; the value of `bind` is the state itself, which input changes."""
    code, value, known = scope.code(attribute.value), attribute.value, scope.module.names
    if attribute.name != "bind" or not isinstance(value, ast.Ident):
        return code
    return lambda frame: cell if type(cell := known.get(value.name)) is CellValue else code(frame)


def component(node: ast.ReactiveComponent | ast.Fragment | ast.V0Component, module: ModuleScope) -> Component:
    """Create a component, which has fresh state each time it is mounted."""

    def mount(given: dict[str, Value]) -> Element:
        own = replace(module, names=dict(module.names))
        if isinstance(node, ast.V0Component):
            _bind(
                node.name, [(prop.name, (lambda: NONE) if prop.optional else None) for prop in node.props], given, own
            )
            return Element(node.name, given, list)
        defaults = [(p.name, thunk(p.name, p.default, own) if p.default is not None else None) for p in node.params]
        _bind(node.name, defaults, given, own)
        if isinstance(node, ast.ReactiveComponent):
            mount_members(node.members, own)
        shown = node.body if isinstance(node, ast.Fragment) else node.view
        show = thunk(node.name, shown, own) if shown is not None else None
        return Element(node.name, given, lambda: [show()] if show is not None else [])

    return Component(node.name, mount)


def _bind(
    name: str, params: Sequence[tuple[str, Callable[[], Value] | None]], given: dict[str, Value], module: ModuleScope
) -> None:
    """Bind parameters by name; the parser removed `attr_` from attributes (A8)."""
    for parameter, default in params:
        key = parameter.removeprefix("attr_")
        if key not in given and default is None:
            raise VoxError(ErrorKind.ARITY_ERROR, f"`{name}` needs `{parameter}`, which was not given")
        module.names[parameter] = given[key] if key in given or default is None else default()
    unknown = given.keys() - {parameter.removeprefix("attr_") for parameter, _ in params} - {"key"}
    if unknown:
        raise VoxError(ErrorKind.NAMED_ARGUMENT, f"`{name}` has no parameter `{min(unknown)}`")


def mount_members(members: Sequence[ast.ReactiveMember], module: ModuleScope) -> None:
    """Bind state and derived values, then run effects and `on mount` in order."""
    effects = []
    for member in members:
        if isinstance(member.body, ast.Statement):
            raise Refused(Refusal.INTERFACE, "a statement among members").fault()
        run = thunk(member.role, member.body, module)
        if member.name is not None:
            module.names[member.name] = CellValue(run()) if member.role == "state" else CellValue(derive=run)
        elif member.role != "cleanup":
            effects.append(run)
    for effect in effects:
        effect()


def thunk(name: str, body: ast.Expr, module: ModuleScope) -> Callable[[], Value]:
    """Compile an expression as a function, so that `?` and `return` work in it."""
    scope = Scope.outermost(module)
    function = FunctionValue(name, (), lambda: compile_function((), scope, partial(charge_body, body)), [])
    return partial(function.invoke, module.machine, [])
