"""Compile patterns, blocks and statements (3.1 and 3.3 of the run-time rules)."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from mens_pipeline.language import ast
from mens_pipeline.language.interpreter.arithmetic import truth
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, Scope
from mens_pipeline.language.interpreter.results import BreakSignal, ContinueSignal, ErrorKind, ReturnSignal, VoxError
from mens_pipeline.language.interpreter.values import UNIT, Value, VariantValue, quote_value

Matcher = Callable[[Value, Frame], bool]
"""Function that returns whether a value matches a pattern, and binds the names of the pattern if so."""


def matcher(pattern: ast.Pattern, scope: Scope, *, mutable: bool = False) -> Matcher:
    if isinstance(pattern, ast.IdentPattern):
        return _name(pattern, scope, mutable=mutable)
    if isinstance(pattern, ast.ConstructorPattern):
        return _constructor(pattern, scope, mutable=mutable)
    if isinstance(pattern, ast.TuplePattern):
        return _tuple(pattern, scope, mutable=mutable)
    if isinstance(pattern, ast.LiteralPattern):
        kind, literal = type(pattern.value), pattern.value
        return lambda value, _frame: type(value) is kind and value == literal
    return lambda _value, _frame: True


def _name(pattern: ast.IdentPattern, scope: Scope, *, mutable: bool) -> Matcher:
    """Test for a known variant without payload; bind every other name (K2)."""
    name = _canonical(pattern.name)
    num_fields = scope.module.variants.get(name)
    if num_fields == 0:
        return lambda value, _frame: type(value) is VariantValue and value.name == name
    if num_fields is not None:
        return _wrong_arity(pattern.name, num_fields, 0, pattern, scope)
    slot = scope.declare(pattern.name, mutable=mutable)

    def bind(value: Value, frame: Frame) -> bool:
        frame[slot] = value
        return True

    return bind


def _constructor(pattern: ast.ConstructorPattern, scope: Scope, *, mutable: bool) -> Matcher:
    name = _canonical(pattern.name)
    num_fields = scope.module.variants.get(name)
    # Declare its names even if it can never match: the body of the arm must still compile.
    inner = [matcher(field, scope, mutable=mutable) for field in pattern.fields]
    if num_fields is None:
        message = f"no type has a variant `{pattern.name}`"
        fail = scope.failing(VoxError(ErrorKind.UNKNOWN_VARIANT, message), pattern)
        return lambda _value, frame: bool(fail(frame))
    if num_fields != len(inner):
        return _wrong_arity(pattern.name, num_fields, len(inner), pattern, scope)

    def match(value: Value, frame: Frame) -> bool:
        if type(value) is not VariantValue or value.name != name or len(value.fields) != num_fields:
            return False
        return all(matches(field, frame) for matches, field in zip(inner, value.fields, strict=True))

    return match


def _tuple(pattern: ast.TuplePattern, scope: Scope, *, mutable: bool) -> Matcher:
    inner = [matcher(element, scope, mutable=mutable) for element in pattern.elements]

    def match(value: Value, frame: Frame) -> bool:
        if type(value) is not tuple or len(value) != len(inner):
            return False
        return all(matches(element, frame) for matches, element in zip(inner, value, strict=True))

    return match


def _canonical(name: str) -> str:
    return "Error" if name == "Err" else name


def _wrong_arity(name: str, expected: int, found: int, pattern: ast.Pattern, scope: Scope) -> Matcher:
    message = f"`{name}` has {expected} fields, its pattern {found}"
    fail = scope.failing(VoxError(ErrorKind.PATTERN_ARITY, message), pattern)
    return lambda _value, frame: bool(fail(frame))


def unit(_frame: Frame) -> Value:
    """Return the unit value (B3)."""
    return UNIT


def block(statements: Sequence[ast.Statement], scope: Scope, *, is_function_body: bool = False) -> Code:
    """Compile a block in its own scope; its last statement gives its value (B3).

    All its steps are charged on entry, even those that an early `return` skips; nested blocks charge their own. In a
    function body, a final `return` needs no jump.
    """
    inner = scope.child()
    outside = scope.layout.cost
    scope.layout.cost = 0
    codes = [inner.statement(statement) for statement in statements[:-1]]
    if statements:
        last = statements[-1]
        if is_function_body and isinstance(last, ast.Return):
            codes.append(inner.code(last.value) if last.value is not None else unit)
        else:
            codes.append(inner.statement(last))
    cost = scope.layout.cost
    scope.layout.cost = outside
    return _sequence(codes, cost, scope)


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


def let(node: ast.Let, scope: Scope) -> Code:
    """Compile `let`; the value comes first, so that `let x = x + 1` reads the outer `x` (B2)."""
    value = scope.code(node.value)
    machine = scope.module.machine
    has_rows = scope.gives_rows(node.value)
    matches = matcher(node.pattern, scope, mutable=node.mutable)
    if has_rows and isinstance(node.pattern, ast.IdentPattern) and node.pattern.name in scope.bindings:
        scope.bindings[node.pattern.name] = replace(scope.bindings[node.pattern.name], has_rows=True)

    def run(frame: Frame) -> Value:
        found = value(frame)
        if not matches(found, frame):
            message = f"the pattern of `let` does not match {quote_value(machine, found)}"
            raise scope.add_place(VoxError(ErrorKind.PATTERN_MISMATCH, message), node)
        return UNIT

    return run


def return_(node: ast.Return, scope: Scope) -> Code:
    value = scope.code(node.value) if node.value is not None else unit

    def run(frame: Frame) -> Value:
        raise ReturnSignal(value(frame))

    return run


def jump(node: ast.Break | ast.Continue, scope: Scope) -> Code:
    in_loop = scope.in_loop
    signal, word = (BreakSignal, "break") if isinstance(node, ast.Break) else (ContinueSignal, "continue")

    def run(_frame: Frame) -> Value:
        if in_loop:
            raise signal
        raise scope.add_place(VoxError(ErrorKind.LOOP_CONTROL, f"`{word}` is not in a loop of its function"), node)

    return run


def while_(node: ast.While, scope: Scope) -> Code:
    """Compile `while`; every iteration charges the condition."""
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
            raise scope.add_place(error, node.condition) from None

    return run


def loop(node: ast.Loop, scope: Scope) -> Code:
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
