"""Functions and lambdas (3.2 of the run-time rules), calls of functions, methods and views, and `|>` (C2-C10, O11)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mens_pipeline.language import ast
from mens_pipeline.language.interpreter.compiler.blocks import block
from mens_pipeline.language.interpreter.compiler.expressions import ASSERTIONS, assertion, is_name
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, Local, Scope
from mens_pipeline.language.interpreter.library.builtins import METHODS
from mens_pipeline.language.interpreter.library.collections import ROWS_METHODS
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import ErrorKind, LimitKind, Refusal, ReturnSignal, VoxError
from mens_pipeline.language.interpreter.values import (
    ActorValue,
    Constructor,
    Namespace,
    Native,
    Refused,
    Value,
    VariantValue,
    arity_error,
    kind_name,
)

_SLOTS_A_STEP = 64  # captured locals that cost one step


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """A compiled function; `defaults` has None for required parameters, `blank` is the frame after the parameters."""

    body: Code
    defaults: tuple[Code | None, ...]
    blank: list[Value]


class FunctionValue:
    """A module-level function, or a lambda with its captured values (C5, C6).

    It is compiled at the first call, because most tests reach few functions. `captured` are copies of the locals
    around it.
    """

    __slots__ = ("_captured", "_make", "_plan", "name", "parameter_names")

    def __init__(
        self, name: str, params: Sequence[ast.Param], make: Callable[[], CompiledFunction], captured: list[Value]
    ) -> None:
        self.name = name
        self.parameter_names = tuple(param.name for param in params)
        self._make = make
        self._plan: CompiledFunction | None = None
        self._captured = captured

    def invoke(self, machine: Machine, arguments: list[Value]) -> Value:
        plan = self._plan
        if plan is None:
            plan = self._plan = self._make()
        num_missing = len(self.parameter_names) - len(arguments)
        frame = self._captured + arguments + ([None] * num_missing if num_missing > 0 else []) + plan.blank
        machine.depth += 1
        if machine.depth > machine.max_depth:
            raise VoxError(
                LimitKind.DEPTH, f"more than {machine.max_depth:,} calls of `{self.name}` and others are open"
            )
        if num_missing:
            self._fill(plan, len(arguments), frame)
        try:
            value = plan.body(frame)
        except ReturnSignal as signal:
            value = signal.value
        machine.depth -= 1
        return value

    def _fill(self, plan: CompiledFunction, num_given: int, frame: Frame) -> None:
        num_params = len(self.parameter_names)
        for index in range(num_given, num_params):
            default = plan.defaults[index]
            if default is None:
                break
            frame[len(self._captured) + index] = default(frame)
        else:
            if num_given <= num_params:
                return
        fewest = sum(default is None for default in plan.defaults)
        expected = str(num_params) if fewest == num_params else f"{fewest} to {num_params}"
        raise arity_error(self.name, expected, num_given)


def compile_function(
    params: Sequence[ast.Param], scope: Scope, compile_body: Callable[[Scope], Code]
) -> CompiledFunction:
    """Compile a function; `compile_body` compiles its body in `scope`, which then declares the parameters."""
    defaults: list[Code | None] = []
    first = scope.layout.size
    scope.layout.size += len(params)
    for index, param in enumerate(params):
        defaults.append(scope.code(param.default) if param.default is not None else None)
        scope.bindings[param.name] = Local(first + index, mutable=False)
    body = compile_body(scope)
    return CompiledFunction(body, tuple(defaults), [None] * (scope.layout.size - first - len(params)))


def lambda_(node: ast.Lambda, scope: Scope) -> Code:
    """Compile a lambda, which copies all visible locals when it is created (C6)."""
    return _closure("lambda", node.params, scope, lambda inner: charge_body(node.body, inner))


def charge_body(node: ast.Expr, scope: Scope) -> Code:
    """Compile the expression that is the body of a function; the code charges its own steps."""
    (code, cost), machine = scope.stretch(node), scope.module.machine

    def run(frame: Frame) -> Value:
        machine.charge(cost)
        return code(frame)

    return run


def side_effect(node: ast.SideEffect, scope: Scope) -> Code:
    """Compile `side_effect` as a lambda without parameters that is called immediately (U2)."""
    create = _closure("side_effect", (), scope, lambda inner: block(node.statements, inner, is_function_body=True))
    machine = scope.module.machine
    return lambda frame: create(frame).invoke(machine, [])


def _closure(name: str, params: Sequence[ast.Param], scope: Scope, compile_body: Callable[[Scope], Code]) -> Code:
    visible = scope.layout.size
    scope.layout.cost += visible // _SLOTS_A_STEP
    # Now, not at the first call: later declarations of the scope must not become visible inside.
    plan = compile_function(params, scope.inner_function(), compile_body)
    return lambda frame: FunctionValue(name, params, lambda: plan, frame[:visible])


CALLABLE = frozenset((FunctionValue, Constructor, Native))
"""Classes of callable values."""

CALLED_BY_TAG = frozenset((FunctionValue, Constructor, VariantValue))
"""Classes of values that a view without children calls by its tag (C10)."""

_Names = Sequence[tuple[int, str]]  # indices and names of the named arguments of a call


def call(node: ast.Call, scope: Scope) -> Code:
    """Compile a call, which evaluates the arguments before the callee (O1)."""
    if is_name(node.callee, ASSERTIONS):
        return assertion(node, scope)
    codes = scope.codes([argument.value for argument in node.arguments])
    callee = scope.code(node.callee)
    return _invocation(callee, codes, _find_names(node.arguments), node, scope)


def pipe(node: ast.Binary, scope: Scope) -> Code:
    """Compile `|>` as a call of the right operand; a bare name of the assert family is the built-in (C8)."""
    if is_name(node.right, ASSERTIONS):
        argument = ast.Argument(node.left.start, node.left.end, None, node.left)
        return assertion(ast.Call(node.start, node.end, node.right, (argument,)), scope)
    codes = [scope.code(node.left)]
    return _invocation(scope.code(node.right), codes, (), node, scope)


def _invocation(callee: Code, codes: Sequence[Code], names: _Names, node: ast.Node, scope: Scope) -> Code:
    machine = scope.module.machine

    def run(frame: Frame) -> Value:
        arguments = [code(frame) for code in codes]
        function = callee(frame)
        try:
            if names or type(function) not in CALLABLE:
                _check_callee(function, names)
            return function.invoke(machine, arguments)
        except VoxError as error:
            raise scope.add_place(error, node) from None

    return run


def _find_names(arguments: Sequence[ast.Argument]) -> _Names:
    return [(index, argument.name) for index, argument in enumerate(arguments) if argument.name is not None]


def _check_callee(value: Value, names: _Names) -> None:
    if type(value) not in CALLABLE:
        raise VoxError(ErrorKind.NOT_CALLABLE, f"{kind_name(value)} cannot be called")
    _check_names(value, names)


def _check_names(function: FunctionValue | Constructor | Native, names: _Names) -> None:
    parameters = function.parameter_names
    for index, name in names:
        expected = parameters[index] if index < len(parameters) else None
        # Attributes of a view lose a leading `attr_` (A8).
        if expected not in {name, f"attr_{name}"}:
            instead = f"is called `{expected}`" if expected is not None else "has no name"
            message = f"argument {index + 1} is given as `{name}` but {instead}"
            raise VoxError(ErrorKind.NAMED_ARGUMENT, message)


def self_closing_view(node: ast.SelfClosingView, scope: Scope) -> Code:
    """Compile a view without children: a call if its tag names a callable value (C10)."""
    codes = scope.codes([attribute.value for attribute in node.attributes])
    names = [(index, attribute.name) for index, attribute in enumerate(node.attributes)]
    if scope.find(node.tag) is not None:
        callee = scope.code(ast.Ident(node.start, node.start + len(node.tag), node.tag))
        return _invocation(callee, codes, names, node, scope)
    known = scope.module.names
    invoke = _invocation(lambda _frame: known[node.tag], codes, names, node, scope)

    def run(frame: Frame) -> Value:
        value = known.get(node.tag)
        if type(value) is FunctionValue or type(value) is Constructor:
            return invoke(frame)
        if type(value) is not VariantValue:
            raise scope.add_place(Refused(Refusal.INTERFACE, f"{node.tag}(…)").fault(), node)
        if codes:
            raise scope.add_place(arity_error(node.tag, "0", len(codes)), node)
        return value

    return run


def view(node: ast.View, scope: Scope) -> Code:
    """Compile a view with children to code that raises, because it is always a user interface."""
    return scope.failing(Refused(Refusal.INTERFACE, f"{node.tag}(…)").fault(), node)


def spawn(node: ast.Spawn, scope: Scope) -> Code:
    """Compile `spawn` to a handle of an actor of this program, which replies synchronously (U2)."""
    target = scope.code(node.target)

    def run(frame: Frame) -> Value:
        value = target(frame)
        if type(value) is not ActorValue:
            raise scope.add_place(Refused(Refusal.SPAWN, "spawn").fault(), node)
        return ActorValue(value.name, value.handlers, is_handle=True)

    return run


def method_call(node: ast.MethodCall, scope: Scope) -> Code:
    """Compile a method call, which evaluates the receiver before the arguments (O1)."""
    target, machine, name = scope.code(node.object), scope.module.machine, node.method
    codes = scope.codes([argument.value for argument in node.arguments])
    names = _find_names(node.arguments)
    has_rows = scope.gives_rows(node.object)
    of_rows = ROWS_METHODS.get(name) if has_rows else None

    def run(frame: Frame) -> Value:
        receiver = target(frame)
        arguments = [code(frame) for code in codes]
        try:
            method = _METHODS.get((type(receiver), name)) or (of_rows if type(receiver) is list else None)
            if method is None and has_rows:
                raise Refused(Refusal.DATABASE, f"rows.{name}").fault()
            if method is None or names:
                return _call_member(machine, receiver, node, arguments, names)
            method.check(len(arguments))
            return method.function(machine, receiver, *arguments)
        except VoxError as error:
            raise scope.add_place(error, node) from None

    return run


_METHODS = {(kind, name): native for kind, natives in METHODS.items() for name, native in natives.items()}


def _call_member(
    machine: Machine, receiver: Value, node: ast.MethodCall, arguments: list[Value], names: _Names
) -> Value:
    if type(receiver) is Namespace:
        function = receiver.members.get(node.method)
        where = f"{receiver.path}.{node.method}"
        if function is None:
            raise VoxError(ErrorKind.UNDEFINED_NAME, f"`{where}` is not defined")
        if type(function) is Refused:
            raise function.fault()
    elif type(receiver) is ActorValue and receiver.is_handle:
        function, where = receiver.handlers.get(node.method), ""
    else:
        function, where = _METHODS.get((type(receiver), node.method)), ""
    if function is None:
        raise VoxError(ErrorKind.UNKNOWN_METHOD, f"{kind_name(receiver)} has no method `{node.method}`")
    if type(function) not in CALLABLE:
        raise VoxError(ErrorKind.NOT_CALLABLE, f"`{where}` cannot be called")
    _check_names(function, names)
    return function.invoke(machine, arguments)
