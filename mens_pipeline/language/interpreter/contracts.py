"""Contracts, checked only where a task asks for it (T7)."""

from collections.abc import Callable, Sequence

from mens_pipeline.language.ast.expressions import Expr
from mens_pipeline.language.ast.functions import Decorator, Function
from mens_pipeline.language.interpreter.arithmetic import truth
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, Scope
from mens_pipeline.language.interpreter.faults import ReturnSignal, VoxError
from mens_pipeline.language.interpreter.results import ErrorKind
from mens_pipeline.language.interpreter.values import Value

_CONTRACTS = frozenset(("@require", "@ensure", "@invariant"))


def has_contract(function: Function) -> bool:
    """Return whether a function carries a condition."""
    return any(decorator.name in _CONTRACTS for decorator in function.decorators)


def guarded(function: Function, scope: Scope, compile_body: Callable[[Scope], Code]) -> Code:
    """Compile the body of a function between its conditions.

    The scope is its own, parameters declared; `compile_body` compiles the body alone.

    Returns:
        Code that checks `@require` and `@invariant` at entry, `@ensure` and `@invariant` at a normal exit.
    """
    before = _conditions(function, scope, ("@require", "@invariant"))
    body = compile_body(scope)
    after_scope = scope.child()
    slot = after_scope.declare("result", mutable=False)
    after = _conditions(function, after_scope, ("@ensure", "@invariant"))

    def run(frame: Frame) -> Value:
        for check in before:
            check(frame)
        try:
            frame[slot] = body(frame)
        except ReturnSignal as signal:
            frame[slot] = signal.value
        for check in after:
            replacement = check(frame)
            if replacement is not None:
                return replacement
        return frame[slot]

    return run


def _conditions(function: Function, scope: Scope, words: Sequence[str]) -> list[Code]:
    return [
        _check(decorator, decorator.condition, scope)
        for word in words
        for decorator in function.decorators
        if decorator.name == word and decorator.condition is not None
    ]


def _check(decorator: Decorator, condition: Expr, scope: Scope) -> Code:
    """Compile a condition to code that returns None where it holds, else the value of the fallback, else fails."""
    code, cost = scope.stretch(condition)
    machine, names, fallback = scope.module.machine, scope.module.names, decorator.fallback
    word = decorator.name

    def run(frame: Frame) -> Value:
        machine.charge(cost)
        depth = machine.depth
        try:
            if truth(code(frame), f"`{word}`"):
                return None
        except VoxError as error:
            if error.reason is not ErrorKind.UNDEFINED_NAME:
                scope.placed(error, condition)
                raise
            machine.depth = depth
            machine.notes[f"`{word}` ignored: {error.message}"] = None
            return None
        if fallback in names:
            return names[fallback].invoke(machine, [])
        raise scope.placed(VoxError(ErrorKind.CONTRACT_VIOLATION, f"`{word}` does not hold"), condition)

    return run
