"""Statements (B2-B6), and the table of type rules by class of syntax."""

from collections.abc import Iterable
from typing import Any, Final

from mens_pipeline.language.ast.base import Node, children
from mens_pipeline.language.ast.expressions import (
    Binary,
    Block,
    BoolLit,
    Call,
    DecimalLit,
    Expr,
    FieldAccess,
    FloatLit,
    For,
    Ident,
    If,
    IndexAccess,
    IntLit,
    Lambda,
    ListLit,
    Match,
    MethodCall,
    ObjectLit,
    SelfClosingView,
    SideEffect,
    Spawn,
    StringLit,
    Try,
    TupleLit,
    Unary,
    View,
    With,
    WorkflowVersion,
)
from mens_pipeline.language.ast.patterns import IdentPattern
from mens_pipeline.language.ast.statements import (
    Assign,
    Break,
    Continue,
    ExprStatement,
    Let,
    Loop,
    Return,
    While,
)
from mens_pipeline.language.types import branches, calls, operators, records
from mens_pipeline.language.types.branches import pattern
from mens_pipeline.language.types.checker import Checker, Forms, Wanted
from mens_pipeline.language.types.fitting import is_definite
from mens_pipeline.language.types.operators import operation
from mens_pipeline.language.types.records import element
from mens_pipeline.language.types.terms import BOOL, NEVER, UNIT, UNKNOWN, Record, Type

_OTHER_BORDERS = (While, Loop, For, Lambda, SideEffect)
"""A `break` inside these acts on them, or on nothing."""


def let(checker: Checker, node: Let, wanted: Wanted) -> Type:
    """`let`: an annotation decides; a record that can be changed may get more fields."""
    name = f"`{node.pattern.name}`" if isinstance(node.pattern, IdentPattern) else "this pattern"
    declared = checker.declared.of(node.type, checker.generics)
    found = checker.expect(node.value, Wanted(declared, f"the value of {name}"))
    type_ = found if node.type is None else declared
    if isinstance(type_, Record) and node.mutable:
        type_ = Record(type_.fields, is_open=True)
    pattern(checker, node.pattern, UNKNOWN if type_ == NEVER else type_)
    return _no_value(checker, node, wanted)


def assign(checker: Checker, node: Assign, wanted: Wanted) -> Type:
    """`=`; of `x += e`, which is kept as `x = x + e`, the target is typed once."""
    target = _assigned(checker, node.target)
    binding = checker.used(_root(node.target))
    if binding is not None and not binding.mutable:
        target = UNKNOWN
    reason = f"what is assigned to `{checker.findings.text(node.target)}`"
    if isinstance(node.value, Binary) and node.value.left is node.target:
        found = operation(checker, node.value, target, checker.infer(node.value.right))
        checker.compare(node.value.right, found, Wanted(target, reason))
    else:
        checker.expect(node.value, Wanted(target, reason))
    return _no_value(checker, node, wanted)


def _root(target: Expr) -> Expr:
    while isinstance(target, FieldAccess | IndexAccess):
        target = target.object
    return target


def _assigned(checker: Checker, target: Expr) -> Type:
    """Return the type of a target; a key of a record may be new (B6)."""
    if not isinstance(target, IndexAccess):
        return checker.infer(target)
    owner = checker.infer(target.object)
    found = element(checker, target, owner)
    return UNKNOWN if isinstance(owner, Record) else found


def _no_value(checker: Checker, node: Node, wanted: Wanted) -> Type:
    checker.compare(node, UNIT, wanted)
    return UNIT


def return_(checker: Checker, node: Return, _wanted: Wanted) -> Type:
    """`return`."""
    if node.value is not None:
        checker.expect(node.value, checker.result)
    elif is_definite(checker.result.type):
        checker.compare(node, UNIT, Wanted(checker.result.type, checker.result.reason, is_result=True))
    return NEVER


def jump(_checker: Checker, _node: Break | Continue, _wanted: Wanted) -> Type:
    """`break` and `continue`."""
    return NEVER


def while_(checker: Checker, node: While, wanted: Wanted) -> Type:
    """`while`; one that never ends has nothing behind it."""
    checker.expect(node.condition, Wanted(BOOL, "the condition of `while`"))
    checker.block(node.body)
    is_endless = isinstance(node.condition, BoolLit) and node.condition.value
    return NEVER if is_endless and not _has_break(node.body) else _no_value(checker, node, wanted)


def loop(checker: Checker, node: Loop, wanted: Wanted) -> Type:
    """`loop`."""
    checker.block(node.body)
    return _no_value(checker, node, wanted) if _has_break(node.body) else NEVER


def _has_break(statements: Iterable[Node]) -> bool:
    pending = list(statements)
    while pending:
        node = pending.pop()
        if isinstance(node, Break):
            return True
        if not isinstance(node, _OTHER_BORDERS):
            pending.extend(children(node))
    return False


def expression_statement(checker: Checker, node: ExprStatement, wanted: Wanted) -> Type:
    """Type an expression on its own."""
    return checker.expect(node.expression, wanted)


def _binary(checker: Checker, node: Any, expected: Type) -> Type:
    return calls.pipe(checker, node, expected) if node.op == "Pipe" else operators.binary(checker, node, expected)


FORMS: Final = Forms(
    plain={
        IntLit: operators.literal,
        FloatLit: operators.literal,
        StringLit: operators.literal,
        BoolLit: operators.literal,
        DecimalLit: operators.literal,
        WorkflowVersion: operators.literal,
        Ident: operators.name,
        ObjectLit: records.object_literal,
        ListLit: operators.list_literal,
        TupleLit: operators.tuple_literal,
        Binary: _binary,
        Unary: operators.unary,
        Try: operators.try_,
        With: operators.with_,
        Call: calls.call,
        MethodCall: calls.method_call,
        FieldAccess: records.field_access,
        IndexAccess: records.index_access,
        For: branches.for_,
        Lambda: branches.lambda_,
        Spawn: calls.spawn,
        SideEffect: branches.side_effect,
        View: calls.view,
        SelfClosingView: calls.view,
    },
    nested={Block: branches.block, If: branches.if_, Match: branches.match},
    statements={
        Let: let,
        Assign: assign,
        Return: return_,
        While: while_,
        Loop: loop,
        Break: jump,
        Continue: jump,
        ExprStatement: expression_statement,
    },
)
