"""The assert family, which no program can redefine (C8, T3)."""

from collections.abc import Callable
from typing import Final

from mens_pipeline.language.ast.expressions import Binary, Call
from mens_pipeline.language.interpreter.arithmetic import OPERATIONS, truth
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, Scope
from mens_pipeline.language.interpreter.equality import equal
from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import ErrorKind
from mens_pipeline.language.interpreter.text_form import shown, text_of
from mens_pipeline.language.interpreter.values import UNIT, Value, arity_error

_COMPARISONS: Final = {"Is": "is", "Isnt": "isnt", "Lt": "<", "Gt": ">", "Lte": "<=", "Gte": ">="}


def assertion(node: Call, scope: Scope) -> Code:
    """Compile a call of `assert`, `assert_eq` or `assert_ne` by its bare name."""
    name = getattr(node.callee, "name", "")
    fewest, most, make = ASSERTIONS[name]
    num_arguments = len(node.arguments)
    check = make(node, scope) if fewest <= num_arguments <= most else _wrong_arity(name, num_arguments)
    machine = scope.module.machine

    def run(frame: Frame) -> Value:
        machine.num_assertions += 1
        try:
            _refuse_names(node)
            check(frame)
        except VoxError as error:
            scope.placed(error, node)
            raise
        return UNIT

    return run


def _refuse_names(node: Call) -> None:
    named = next((argument.name for argument in node.arguments if argument.name is not None), None)
    if named is not None:
        raise VoxError(ErrorKind.NAMED_ARGUMENT, f"the arguments of assertions have no names, found `{named}`")


def _wrong_arity(name: str, found: int) -> Code:
    def run(_frame: Frame) -> Value:
        fewest, most, _make = ASSERTIONS[name]
        raise arity_error(name, str(most) if fewest == most else f"{fewest} to {most}", found)

    return run


def _assert(node: Call, scope: Scope) -> Code:
    """`assert(condition)`, `assert(condition, message)`; a comparison shows both of its sides."""
    condition, machine = node.arguments[0].value, scope.module.machine
    message = scope.code(node.arguments[1].value) if len(node.arguments) > 1 else None
    judge = _comparison(condition, scope) if isinstance(condition, Binary) else None
    plain = scope.code(condition) if judge is None else None

    def run(frame: Frame) -> Value:
        explanation = judge(frame) if judge is not None else None
        if plain is not None and not truth(plain(frame), "`assert`"):
            explanation = "the assertion is false"
        words = message(frame) if message is not None else None
        if explanation is None:
            return UNIT
        raise VoxError(None, explanation if words is None else f"{text_of(machine, words)}: {explanation}")

    return run


def _comparison(node: Binary, scope: Scope) -> Callable[[Frame], str | None] | None:
    word = _COMPARISONS.get(node.op)
    if word is None:
        return None
    left, right = scope.code(node.left), scope.code(node.right)
    operate, machine = OPERATIONS[node.op], scope.module.machine

    def judge(frame: Frame) -> str | None:
        a, b = left(frame), right(frame)
        return None if operate(machine, a, b) else _difference(machine, word, a, b)

    return judge


def _difference(machine: Machine, word: str, left: Value, right: Value) -> str:
    return f"expected `left {word} right`, left is {shown(machine, left)}, right is {shown(machine, right)}"


def _compared(*, same: bool) -> Callable[[Call, Scope], Code]:
    def make(node: Call, scope: Scope) -> Code:
        left, right = scope.code(node.arguments[0].value), scope.code(node.arguments[1].value)
        machine = scope.module.machine

        def run(frame: Frame) -> Value:
            a, b = left(frame), right(frame)
            if equal(machine, a, b) is not same:
                raise VoxError(None, _difference(machine, "is" if same else "isnt", a, b))
            return UNIT

        return run

    return make


ASSERTIONS: Final[dict[str, tuple[int, int, Callable[[Call, Scope], Code]]]] = {
    "assert": (1, 2, _assert),
    "assert_eq": (2, 2, _compared(same=True)),
    "assert_ne": (2, 2, _compared(same=False)),
}
"""Name -> fewest and most arguments, and how its check is compiled."""
