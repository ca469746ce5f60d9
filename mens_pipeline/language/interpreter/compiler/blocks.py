"""Blocks and statements (3.1 of the run-time rules)."""

from collections.abc import Sequence

from mens_pipeline.language.ast.base import Node
from mens_pipeline.language.ast.statements import (
    Break,
    Continue,
    ExprStatement,
    Let,
    Loop,
    Return,
    Statement,
    While,
)
from mens_pipeline.language.interpreter.arithmetic import truth
from mens_pipeline.language.interpreter.compiler.patterns import matcher
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, Scope
from mens_pipeline.language.interpreter.faults import BreakSignal, ContinueSignal, ReturnSignal, VoxError
from mens_pipeline.language.interpreter.results import ErrorKind
from mens_pipeline.language.interpreter.text_form import shown
from mens_pipeline.language.interpreter.values import UNIT, Value


def unit(_frame: Frame) -> Value:
    """Return the unit value: the code of what has no value (B3)."""
    return UNIT


def block(statements: Sequence[Statement], scope: Scope, *, is_function_body: bool = False) -> Code:
    """Compile a block in a scope of its own; its value is that of its last statement (B3).

    Its steps are charged when it is entered, nested blocks for themselves: a `return` in the middle costs what stands
    behind it, which is never more than the block is long.

    In a function body, a `return` at its end can be had without a jump.
    """
    inner = scope.child()
    outside = scope.layout.cost
    scope.layout.cost = 0
    codes = [inner.statement(statement) for statement in statements[:-1]]
    if statements:
        codes.append(_last(statements[-1], inner, is_function_body=is_function_body))
    cost = scope.layout.cost
    scope.layout.cost = outside
    return _sequence(codes, cost, scope)


def _last(statement: Statement, scope: Scope, *, is_function_body: bool) -> Code:
    if is_function_body and isinstance(statement, Return):
        return scope.code(statement.value) if statement.value is not None else unit
    return scope.statement(statement)


def _sequence(codes: Sequence[Code], cost: int, scope: Scope) -> Code:
    if not codes:
        return unit
    machine, leading, last = scope.module.machine, codes[:-1], codes[-1]

    def run(frame: Frame) -> Value:
        machine.steps += cost
        if machine.steps > machine.max_steps:
            machine.out_of_steps()
        for code in leading:
            code(frame)
        return last(frame)

    return run


def let(node: Let, scope: Scope) -> Code:
    """`let`: the value first, so that `let x = x + 1` means the outer `x` (B2)."""
    value = scope.code(node.value)
    machine = scope.module.machine
    matches = matcher(node.pattern, scope, mutable=node.mutable)

    def run(frame: Frame) -> Value:
        found = value(frame)
        if not matches(found, frame):
            message = f"the pattern of `let` does not match {shown(machine, found)}"
            raise scope.placed(VoxError(ErrorKind.PATTERN_MISMATCH, message), node)
        return UNIT

    return run


def return_(node: Return, scope: Scope) -> Code:
    """`return`."""
    value = scope.code(node.value) if node.value is not None else unit

    def run(frame: Frame) -> Value:
        raise ReturnSignal(value(frame))

    return run


def break_(node: Break, scope: Scope) -> Code:
    """`break`."""
    return _jump(BreakSignal, "break", node, scope)


def continue_(node: Continue, scope: Scope) -> Code:
    """`continue`."""
    return _jump(ContinueSignal, "continue", node, scope)


def _jump(signal: type[Exception], word: str, node: Node, scope: Scope) -> Code:
    in_loop = scope.in_loop

    def run(_frame: Frame) -> Value:
        if in_loop:
            raise signal
        raise scope.placed(VoxError(ErrorKind.LOOP_CONTROL, f"`{word}` stands in no loop of its function"), node)

    return run


def expression_statement(node: ExprStatement, scope: Scope) -> Code:
    """Compile an expression on its own."""
    return scope.code(node.expression)


def while_(node: While, scope: Scope) -> Code:
    """`while`: the condition is charged at every turn."""
    condition, cost = scope.stretch(node.condition)
    body = block(node.body, scope.child(in_loop=True))
    machine = scope.module.machine

    def run(frame: Frame) -> Value:
        while True:
            machine.charge(1 + cost)
            verdict = condition(frame)
            if verdict is not True:
                _check(verdict)
                return UNIT
            try:
                body(frame)
            except ContinueSignal:
                continue
            except BreakSignal:
                return UNIT

    def _check(verdict: Value) -> None:
        try:
            truth(verdict, "`while`")
        except VoxError as error:
            raise scope.placed(error, node.condition) from None

    return run


def loop(node: Loop, scope: Scope) -> Code:
    """`loop`."""
    body = block(node.body, scope.child(in_loop=True))
    machine = scope.module.machine

    def run(frame: Frame) -> Value:
        while True:
            machine.charge(1)
            try:
                body(frame)
            except ContinueSignal:
                continue
            except BreakSignal:
                return UNIT

    return run
