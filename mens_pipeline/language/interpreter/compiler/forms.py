"""Compile branches, `for` and assignments, and map every class of syntax to its compiler."""

from typing import Any, Final

from mens_pipeline.language import ast
from mens_pipeline.language.interpreter.arithmetic import truth
from mens_pipeline.language.interpreter.compiler import blocks, calls, expressions, views
from mens_pipeline.language.interpreter.compiler.blocks import block, matcher, unit
from mens_pipeline.language.interpreter.compiler.expressions import position
from mens_pipeline.language.interpreter.compiler.scope import Code, Compilers, Frame, Scope
from mens_pipeline.language.interpreter.library.views import CellValue
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import BreakSignal, ContinueSignal, ErrorKind, VoxError
from mens_pipeline.language.interpreter.values import UNIT, Value, kind_name, quote_value, type_error


def if_(node: ast.If, scope: Scope) -> Code:
    """Compile `if`, whose value is the branch taken, or else Unit (B4)."""
    condition, then = scope.code(node.condition), block(node.then, scope)
    otherwise = block(node.otherwise, scope) if node.otherwise is not None else unit

    def run(frame: Frame) -> Value:
        verdict = condition(frame)
        if verdict is True:
            return then(frame)
        if verdict is False:
            return otherwise(frame)
        try:
            return truth(verdict, "`if`")
        except VoxError as error:
            raise scope.add_place(error, node.condition) from None

    return run


def match(node: ast.Match, scope: Scope) -> Code:
    """Compile `match`, which runs the first arm that matches (K1)."""
    subject, machine = scope.code(node.subject), scope.module.machine
    arms = []
    for arm in node.arms:
        inner = scope.child()
        matches = matcher(arm.pattern, inner)
        arms.append((matches, *inner.stretch(arm.body)))

    def run(frame: Frame) -> Value:
        value = subject(frame)
        for matches, body, cost in arms:
            if matches(value, frame):
                machine.charge(cost)
                return body(frame)
        message = f"no arm of `match` fits {quote_value(machine, value)}"
        raise scope.add_place(VoxError(ErrorKind.NON_EXHAUSTIVE_MATCH, message), node)

    return run


def for_(node: ast.For, scope: Scope) -> Code:
    """Compile `for`, which lists the values of its body; the second name is the index from 0 (B5)."""
    iterable, machine = scope.code(node.iterable), scope.module.machine
    inner = scope.child(in_loop=True)
    element = inner.declare(node.binding, mutable=False)
    index = inner.declare(node.index, mutable=False) if node.index is not None else None
    body, cost = inner.stretch(node.body)

    def run(frame: Frame) -> Value:
        values = iterable(frame)
        if type(values) is not list:
            raise scope.add_place(type_error(f"`for` takes a list, found {kind_name(values)}"), node.iterable)
        results = []
        for number, value in enumerate(values):
            machine.charge(1 + cost)
            frame[element] = value
            if index is not None:
                frame[index] = number
            try:
                results.append(body(frame))
            except ContinueSignal:
                continue
            except BreakSignal:
                break
        return results

    return run


_Step = tuple[Code, bool]
"""One step of a path: the code of its key, and whether the key must be a field of a record."""


def assign(node: ast.Assign, scope: Scope) -> Code:
    """Compile an assignment; an invalid target raises when it is reached, after the value is computed."""
    value = scope.code(node.value)
    root, steps = _path(node.target, scope)
    binding = scope.find(root.name) if isinstance(root, ast.Ident) else None
    if binding is None and isinstance(root, ast.Ident) and scope.module.features.views:
        return _assign_state(value, root, steps, node, scope)
    if binding is None or not binding.mutable:
        return scope.failing(_target_error(root, scope), node.target, value)
    slot, machine = binding.slot, scope.module.machine

    def run(frame: Frame) -> Value:
        new = value(frame)
        keys = [(code(frame), is_field) for code, is_field in steps]
        try:
            frame[slot] = _copy_with(machine, frame[slot], keys, new) if keys else new
        except VoxError as error:
            raise scope.add_place(error, node.target) from None
        return UNIT

    return run


def _assign_state(value: Code, root: ast.Ident, steps: list[_Step], node: ast.Assign, scope: Scope) -> Code:
    """Compile an assignment to a module-level name; only at run time is it known to be a `state` (U6)."""
    known, machine = scope.module.names, scope.module.machine

    def run(frame: Frame) -> Value:
        new, cell = value(frame), known.get(root.name)
        if type(cell) is not CellValue or cell.derive is not None:
            raise scope.add_place(_target_error(root, scope), node.target)
        keys = [(code(frame), is_field) for code, is_field in steps]
        try:
            cell.value = _copy_with(machine, cell.value, keys, new) if keys else new
        except VoxError as error:
            raise scope.add_place(error, node.target) from None
        return UNIT

    return run


def _path(target: ast.Expr, scope: Scope) -> tuple[ast.Expr, list[_Step]]:
    steps: list[_Step] = []
    while isinstance(target, ast.FieldAccess | ast.IndexAccess):
        if isinstance(target, ast.FieldAccess):
            steps.append((expressions.constant(target.field), True))
        else:
            steps.append((scope.code(target.index), False))
        target = target.object
    return target, steps[::-1]


def _target_error(root: ast.Expr, scope: Scope) -> VoxError:
    if not isinstance(root, ast.Ident):
        message = "only names and their fields and elements can be assigned to"
        return VoxError(ErrorKind.INVALID_ASSIGN_TARGET, message)
    if scope.find(root.name) is not None:
        return VoxError(ErrorKind.ASSIGN_TO_IMMUTABLE, f"`{root.name}` was not declared with `let mut`")
    if root.name in scope.module.names:
        message = f"`{root.name}` belongs to the module and cannot be assigned to"
        return VoxError(ErrorKind.ASSIGN_TO_IMMUTABLE, message)
    return VoxError(ErrorKind.UNDEFINED_NAME, f"`{root.name}` is not defined")


def _copy_with(machine: Machine, value: Value, keys: list[tuple[Value, bool]], new: Value) -> Value:
    """Copy each list or record along the path, because values are immutable (V6)."""
    (key, is_field), rest = keys[0], keys[1:]
    if is_field and type(value) is not dict:
        raise type_error(f"{kind_name(value)} has no fields, so no `.{key}`")
    is_new = type(value) is dict and type(key) is str and not is_field and not rest and key not in value
    place = key if is_new else position(value, key)
    machine.allocate(len(value))
    inner = _copy_with(machine, value[place], rest, new) if rest else new
    copy = value.copy()
    copy[place] = inner
    return copy


def _self_closing_view(node: ast.SelfClosingView, scope: Scope) -> Code:
    call = calls.self_closing_view(node, scope)
    if not scope.module.features.views or scope.find(node.tag) is not None:
        return call
    show, known = views.view(node, scope), scope.module.names

    def run(frame: Frame) -> Value:
        code = call if type(known.get(node.tag)) in calls.CALLED_BY_TAG else show
        return code(frame)

    return run


def _binary(node: Any, scope: Scope) -> Code:
    if node.op == "Pipe":
        return calls.pipe(node, scope)
    return expressions.logical(node, scope) if node.op in {"And", "Or"} else expressions.binary(node, scope)


FORMS: Final = Compilers(
    expressions={
        **dict.fromkeys(
            (ast.IntLit, ast.FloatLit, ast.StringLit, ast.BoolLit),
            lambda node, _scope: expressions.constant(node.value),
        ),
        ast.DecimalLit: expressions.decimal_literal,
        ast.Ident: expressions.name,
        ast.ObjectLit: expressions.object_literal,
        ast.ListLit: expressions.list_literal,
        ast.TupleLit: expressions.tuple_literal,
        ast.Binary: _binary,
        ast.Unary: expressions.unary,
        ast.Try: expressions.try_,
        ast.With: expressions.with_,
        ast.Call: calls.call,
        ast.MethodCall: calls.method_call,
        ast.FieldAccess: expressions.field_access,
        ast.IndexAccess: expressions.index_access,
        ast.Match: match,
        ast.If: if_,
        ast.For: for_,
        ast.Lambda: calls.lambda_,
        ast.Spawn: calls.spawn,
        ast.Block: lambda node, scope: block(node.statements, scope),
        ast.SideEffect: calls.side_effect,
        ast.WorkflowVersion: lambda node, _scope: expressions.constant(node.maximum),  # the version for a new run (U2)
        ast.View: lambda node, scope: (views if scope.module.features.views else calls).view(node, scope),
        ast.SelfClosingView: _self_closing_view,
    },
    statements={
        ast.Let: blocks.let,
        ast.Assign: assign,
        ast.Return: blocks.return_,
        ast.While: blocks.while_,
        ast.Loop: blocks.loop,
        ast.Break: blocks.jump,
        ast.Continue: blocks.jump,
        ast.ExprStatement: lambda node, scope: scope.code(node.expression),
    },
)
