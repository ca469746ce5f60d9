"""What a small pure function returns: the few expressions and statements whose meaning is beyond doubt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import copysign
from typing import Any, Final

from mens_pipeline.language.ast.expressions import (
    Binary,
    BoolLit,
    Call,
    Expr,
    Ident,
    If,
    IntLit,
    Match,
    StringLit,
    Unary,
)
from mens_pipeline.language.ast.functions import Function
from mens_pipeline.language.ast.patterns import IdentPattern, LiteralPattern, Pattern, WildcardPattern
from mens_pipeline.language.ast.statements import ExprStatement, Let, Return, Statement
from mens_pipeline.language.vocabulary import MAX_INT

Value = int | bool | str
"""A value whose text and equality are beyond doubt."""

BUILT_INS: Final = ("str", "len")
"""Functions of the library that are evaluated; a program that declares one of its own is not."""

_Scope = Mapping[str, Value]


class CannotEvaluateError(Exception):
    """Something that this evaluator does not know or that would be an error in Vox; never leaves the mutations."""


@dataclass(frozen=True, slots=True)
class _Returned:
    """A `return` that was reached."""

    value: Value


def result_of(function: Function, arguments: Sequence[Value]) -> Value:
    """What a function returns.

    Args:
        function: A function of `let`, `if` and `return` over ints, bools and strings.
        arguments: One for each parameter.

    Raises:
        CannotEvaluateError: The body holds something else, fails, or ends without `return`.
    """
    scope = {param.name: argument for param, argument in zip(function.params, arguments, strict=True)}
    returned = _run(function.body, scope)
    if returned is None:
        raise CannotEvaluateError("no return")
    return returned.value


def _run(statements: Sequence[Statement], outer: _Scope) -> _Returned | None:
    scope = dict(outer)
    for statement in statements:
        returned = None
        if isinstance(statement, Return) and statement.value is not None:
            returned = _Returned(_evaluate(statement.value, scope))
        elif isinstance(statement, Let) and isinstance(statement.pattern, IdentPattern):
            scope[statement.pattern.name] = _evaluate(statement.value, scope)
        elif isinstance(statement, ExprStatement) and isinstance(statement.expression, If):
            branch = _branch(statement.expression, scope)
            returned = _run(branch, scope)
        else:
            raise CannotEvaluateError("statement")
        if returned is not None:
            return returned
    return None


def _branch(node: If, scope: _Scope) -> Sequence[Statement]:
    return node.then if _truth(_evaluate(node.condition, scope)) else node.otherwise or ()


def _evaluate(node: Expr, scope: _Scope) -> Value:
    form = _FORMS.get(type(node))
    if form is None:
        raise CannotEvaluateError(type(node).__name__)
    return form(node, scope)


def _literal(node: Any, _scope: _Scope) -> Value:
    value: Value = node.value
    return value


def _name(node: Ident, scope: _Scope) -> Value:
    if node.name not in scope:
        raise CannotEvaluateError(node.name)
    return scope[node.name]


def _unary(node: Unary, scope: _Scope) -> Value:
    operand = _evaluate(node.operand, scope)
    return not _truth(operand) if node.op == "Not" else _in_range(-_integer(operand))


def _binary(node: Binary, scope: _Scope) -> Value:
    left = _evaluate(node.left, scope)
    if node.op in {"And", "Or"}:
        return left if _truth(left) is (node.op == "Or") else _truth(_evaluate(node.right, scope))
    operator = _OPERATORS.get(node.op)
    if operator is None:
        raise CannotEvaluateError(node.op)
    return operator(left, _evaluate(node.right, scope))


def _if(node: If, scope: _Scope) -> Value:
    match _branch(node, scope):
        case (ExprStatement(expression=value),):
            return _evaluate(value, scope)
    raise CannotEvaluateError("branch")


def _match(node: Match, scope: _Scope) -> Value:
    subject = _evaluate(node.subject, scope)
    for arm in node.arms:
        bound = _bound(arm.pattern, subject)
        if bound is not None:
            return _evaluate(arm.body, {**scope, **bound})
    raise CannotEvaluateError("no arm")


def _bound(pattern: Pattern, subject: Value) -> _Scope | None:
    """The names that a pattern binds; None when it does not match."""
    if isinstance(pattern, WildcardPattern):
        return {}
    if isinstance(pattern, LiteralPattern):
        return {} if _same(pattern.value, subject) else None
    if isinstance(pattern, IdentPattern) and pattern.name[0].islower():
        return {pattern.name: subject}
    raise CannotEvaluateError("pattern")


def _call(node: Call, scope: _Scope) -> Value:
    match node:
        case Call(callee=Ident(name=name), arguments=(argument,)) if name in BUILT_INS and name not in scope:
            value = _evaluate(argument.value, scope)
            return _text(value) if name == "str" else len(_string(value).encode())
    raise CannotEvaluateError("call")


def _add(left: Value, right: Value) -> Value:
    if isinstance(left, str) or isinstance(right, str):
        return _text(left) + _text(right)
    return _in_range(_integer(left) + _integer(right))


def _quotient(left: Value, right: Value) -> int:
    """Truncated toward zero, as Vox has it."""
    dividend, divisor = _integer(left), _integer(right)
    if divisor == 0:
        raise CannotEvaluateError("division by zero")
    return _in_range(abs(dividend) // abs(divisor) * int(copysign(1, dividend) * copysign(1, divisor)))


def _remainder(left: Value, right: Value) -> int:
    """With the sign of the left operand."""
    return _integer(left) - _quotient(left, right) * _integer(right)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _same(left: Value, right: Value) -> bool:
    """Equality; values of different types are different."""
    return type(left) is type(right) and left == right


def _truth(value: Value) -> bool:
    if not isinstance(value, bool):
        raise CannotEvaluateError("not a bool")
    return value


def _integer(value: Value) -> int:
    if type(value) is not int:
        raise CannotEvaluateError("not an int")
    return value


def _string(value: Value) -> str:
    if not isinstance(value, str):
        raise CannotEvaluateError("not a string")
    return value


def _in_range(value: int) -> int:
    if not -MAX_INT - 1 <= value <= MAX_INT:
        raise CannotEvaluateError("overflow")
    return value


_FORMS: Final[dict[type, Callable[[Any, _Scope], Value]]] = {
    IntLit: _literal,
    BoolLit: _literal,
    StringLit: _literal,
    Ident: _name,
    Unary: _unary,
    Binary: _binary,
    If: _if,
    Match: _match,
    Call: _call,
}
_OPERATORS: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "Add": _add,
    "Sub": lambda left, right: _in_range(_integer(left) - _integer(right)),
    "Mul": lambda left, right: _in_range(_integer(left) * _integer(right)),
    "Div": _quotient,
    "Mod": _remainder,
    "Lt": lambda left, right: _integer(left) < _integer(right),
    "Gt": lambda left, right: _integer(left) > _integer(right),
    "Lte": lambda left, right: _integer(left) <= _integer(right),
    "Gte": lambda left, right: _integer(left) >= _integer(right),
    "Is": _same,
    "Isnt": lambda left, right: not _same(left, right),
}
