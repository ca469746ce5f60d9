"""Table of type rules by class of syntax."""

from typing import Any, Final

from mens_pipeline.language.ast.expressions import (
    Binary,
    Block,
    BoolLit,
    Call,
    DecimalLit,
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
from mens_pipeline.language.types import branches, calls, operators, records, statements
from mens_pipeline.language.types.checker import Checker, Forms
from mens_pipeline.language.types.terms import Type


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
        Let: statements.let,
        Assign: statements.assign,
        Return: statements.return_,
        While: statements.while_,
        Loop: statements.loop,
        Break: statements.jump,
        Continue: statements.jump,
        ExprStatement: statements.expression_statement,
    },
)
