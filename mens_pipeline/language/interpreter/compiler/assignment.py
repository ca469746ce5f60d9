"""`=`: rebinding a name, or the name at the root of a path (B6)."""

from mens_pipeline.language.ast.expressions import Expr, FieldAccess, Ident, IndexAccess
from mens_pipeline.language.ast.statements import Assign
from mens_pipeline.language.interpreter.compiler.expressions import position
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, Scope
from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import ErrorKind
from mens_pipeline.language.interpreter.values import UNIT, Value, kind_name, type_error

_Step = tuple[Code, bool]
"""One step of a path: the code of its key, and whether the key must be a field of a record."""


def assign(node: Assign, scope: Scope) -> Code:
    """Compile an assignment; a wrong target is an error when it is reached, after its value."""
    value = scope.code(node.value)
    root, steps = _path(node.target, scope)
    problem = _problem(root, scope)
    if problem is not None:
        return _refused(*problem, value, node, scope)
    binding = scope.find(root.name) if isinstance(root, Ident) else None
    assert binding is not None  # noqa: S101 - `_problem` has looked
    slot, machine = binding.slot, scope.module.machine

    def run(frame: Frame) -> Value:
        new = value(frame)
        keys = [(code(frame), is_field) for code, is_field in steps]
        try:
            frame[slot] = _changed(machine, frame[slot], keys, new) if keys else new
        except VoxError as error:
            scope.placed(error, node.target)
            raise
        return UNIT

    return run


def _path(target: Expr, scope: Scope) -> tuple[Expr, list[_Step]]:
    """Return the expression at the root of a target, and the steps from there."""
    steps: list[_Step] = []
    while isinstance(target, FieldAccess | IndexAccess):
        if isinstance(target, FieldAccess):
            steps.append((_constant(target.field), True))
        else:
            steps.append((scope.code(target.index), False))
        target = target.object
    return target, steps[::-1]


def _constant(key: str) -> Code:
    return lambda _frame: key


def _problem(root: Expr, scope: Scope) -> tuple[ErrorKind, str] | None:
    if not isinstance(root, Ident):
        return ErrorKind.INVALID_ASSIGN_TARGET, "only names and their fields and elements can be assigned to"
    binding = scope.find(root.name)
    if binding is not None:
        if binding.mutable:
            return None
        return ErrorKind.ASSIGN_TO_IMMUTABLE, f"`{root.name}` was not declared with `let mut`"
    if root.name in scope.module.names:
        return ErrorKind.ASSIGN_TO_IMMUTABLE, f"`{root.name}` belongs to the module and cannot be assigned to"
    return ErrorKind.UNDEFINED_NAME, f"`{root.name}` is not defined"


def _refused(kind: ErrorKind, message: str, value: Code, node: Assign, scope: Scope) -> Code:
    def run(frame: Frame) -> Value:
        value(frame)
        raise scope.placed(VoxError(kind, message), node.target)

    return run


def _changed(machine: Machine, value: Value, keys: list[tuple[Value, bool]], new: Value) -> Value:
    """Copy a list or record with another value at the end of a path; nothing else is touched (V6)."""
    (key, is_field), rest = keys[0], keys[1:]
    if is_field and type(value) is not dict:
        raise type_error(f"{kind_name(value)} has no fields, so no `.{key}`")
    is_new = type(value) is dict and type(key) is str and not is_field and not rest and key not in value
    place = key if is_new else position(value, key)
    machine.allocate(len(value))
    inner = _changed(machine, value[place], rest, new) if rest else new
    copy = value.copy()
    copy[place] = inner
    return copy
