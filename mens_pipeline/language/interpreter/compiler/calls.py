"""Calls of functions, methods and views, and `|>` (C2-C10, O11)."""

from collections.abc import Sequence

from mens_pipeline.language.ast.base import Node
from mens_pipeline.language.ast.expressions import (
    Argument,
    Binary,
    Call,
    Expr,
    FieldAccess,
    Ident,
    MethodCall,
    SelfClosingView,
    Spawn,
    View,
)
from mens_pipeline.language.interpreter.compiler.assertions import ASSERTIONS, assertion
from mens_pipeline.language.interpreter.compiler.expressions import is_name
from mens_pipeline.language.interpreter.compiler.functions import Function
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, Scope
from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.library.methods import METHODS
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import ErrorKind, Refusal
from mens_pipeline.language.interpreter.values import (
    Actor,
    Constructor,
    Namespace,
    Native,
    Refused,
    Value,
    Variant,
    arity_error,
    kind_name,
)

CALLABLE = frozenset((Function, Constructor, Native))
"""The classes of values that can be called."""

_Names = Sequence[tuple[int, str]]
"""The named arguments of a call: their places and names."""


def call(node: Call, scope: Scope) -> Code:
    """Compile a call: arguments, then the callee (O1)."""
    if is_name(node.callee, ASSERTIONS):
        return assertion(node, scope)
    codes = scope.codes([argument.value for argument in node.arguments])
    callee = scope.code(node.callee)
    return _invocation(callee, codes, _names_of(node.arguments), node, scope)


def pipe(node: Binary, scope: Scope) -> Code:
    """`|>`: the right operand is called with the left one; a bare name of the assert family is the built-in (C8)."""
    if is_name(node.right, ASSERTIONS):
        argument = Argument(node.left.start, node.left.end, None, node.left)
        return assertion(Call(node.start, node.end, node.right, (argument,)), scope)
    codes = [scope.code(node.left)]
    return _invocation(scope.code(node.right), codes, (), node, scope)


def _invocation(callee: Code, codes: Sequence[Code], names: _Names, node: Node, scope: Scope) -> Code:
    machine = scope.module.machine

    def run(frame: Frame) -> Value:
        arguments = [code(frame) for code in codes]
        function = callee(frame)
        try:
            if names or type(function) not in CALLABLE:
                _check_callee(function, names)
            return function.invoke(machine, arguments)
        except VoxError as error:
            scope.placed(error, node)
            raise

    return run


def _names_of(arguments: Sequence[Argument]) -> _Names:
    return [(index, argument.name) for index, argument in enumerate(arguments) if argument.name is not None]


def _check_callee(value: Value, names: _Names) -> None:
    if type(value) not in CALLABLE:
        raise VoxError(ErrorKind.NOT_CALLABLE, f"{kind_name(value)} cannot be called")
    _check_names(value, names)


def _check_names(function: Function | Constructor | Native, names: _Names) -> None:
    """Check that each name is that of the parameter at its place (C4)."""
    parameters = function.parameter_names
    for index, name in names:
        expected = parameters[index] if index < len(parameters) else None
        # Attributes of a view lose an `attr_` in front (A8).
        if expected not in {name, f"attr_{name}"}:
            instead = f"is called `{expected}`" if expected is not None else "has no name"
            message = f"argument {index + 1} is given as `{name}` but {instead}"
            raise VoxError(ErrorKind.NAMED_ARGUMENT, message)


def self_closing_view(node: SelfClosingView, scope: Scope) -> Code:
    """Compile a view without children: a call, if its tag names something that can be called (C10)."""
    codes = scope.codes([attribute.value for attribute in node.attributes])
    names = [(index, attribute.name) for index, attribute in enumerate(node.attributes)]
    if scope.find(node.tag) is not None:
        callee = scope.code(Ident(node.start, node.start + len(node.tag), node.tag))
        return _invocation(callee, codes, names, node, scope)
    known = scope.module.names
    invoke = _invocation(lambda _frame: known[node.tag], codes, names, node, scope)

    def run(frame: Frame) -> Value:
        value = known.get(node.tag)
        if type(value) is Function or type(value) is Constructor:
            return invoke(frame)
        if type(value) is not Variant:
            raise scope.placed(Refused(Refusal.INTERFACE, f"{node.tag}(…)").fault(), node)
        if codes:
            raise scope.placed(arity_error(node.tag, "0", len(codes)), node)
        return value

    return run


def view(node: View, scope: Scope) -> Code:
    """Compile a view with children, which is always part of a user interface, to an error when it is reached."""

    def run(_frame: Frame) -> Value:
        raise scope.placed(Refused(Refusal.INTERFACE, f"{node.tag}(…)").fault(), node)

    return run


def spawn(node: Spawn, scope: Scope) -> Code:
    """`spawn`: a handle on an actor of this program, which answers at once (U2)."""
    target = scope.code(node.target)

    def run(frame: Frame) -> Value:
        value = target(frame)
        if type(value) is not Actor:
            raise scope.placed(Refused(Refusal.SPAWN, "spawn").fault(), node)
        return Actor(value.name, value.handlers, is_handle=True)

    return run


def method_call(node: MethodCall, scope: Scope) -> Code:
    """Compile a method call: receiver, then arguments (O1)."""
    target, machine, name = scope.code(node.object), scope.module.machine, node.method
    codes = scope.codes([argument.value for argument in node.arguments])
    names = _names_of(node.arguments)

    def run(frame: Frame) -> Value:
        receiver = target(frame)
        arguments = [code(frame) for code in codes]
        try:
            method = _METHODS.get((type(receiver), name))
            if method is None or names:
                return _special(machine, receiver, node, arguments, names)
            method.check(len(arguments))
            return method.function(machine, receiver, *arguments)
        except VoxError as error:
            scope.placed(error, node)
            raise

    return run


_METHODS = {(kind, name): native for kind, natives in METHODS.items() for name, native in natives.items()}


def _special(machine: Machine, receiver: Value, node: MethodCall, arguments: list[Value], names: _Names) -> Value:
    """Members of namespaces, events of actors; all else is an error."""
    if type(receiver) is Namespace:
        function = receiver.members.get(node.method)
        where = f"{receiver.path}.{node.method}"
        if function is None:
            raise VoxError(ErrorKind.UNDEFINED_NAME, f"`{where}` is not defined")
        if type(function) is Refused:
            raise function.fault()
    elif type(receiver) is Actor and receiver.is_handle:
        function, where = receiver.handlers.get(node.method), ""
    else:
        function, where = _METHODS.get((type(receiver), node.method)), ""
    if function is None:
        raise _unknown(receiver, node)
    if type(function) not in CALLABLE:
        raise VoxError(ErrorKind.NOT_CALLABLE, f"`{where}` cannot be called")
    _check_names(function, names)
    return function.invoke(machine, arguments)


def _unknown(receiver: Value, node: MethodCall) -> VoxError:
    inner = node.object
    if isinstance(inner, MethodCall) and isinstance(inner.object, FieldAccess) and _is_database(inner.object.object):
        return Refused(Refusal.DATABASE, f".{inner.method}(…).{node.method}").fault()
    return VoxError(ErrorKind.UNKNOWN_METHOD, f"{kind_name(receiver)} has no method `{node.method}`")


def _is_database(node: Expr) -> bool:
    return is_name(node, frozenset(("db",)))
