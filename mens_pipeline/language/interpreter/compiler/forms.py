"""Which class of syntax is compiled by what."""

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
from mens_pipeline.language.interpreter.compiler import blocks, branches, calls, expressions, functions
from mens_pipeline.language.interpreter.compiler.assignment import assign
from mens_pipeline.language.interpreter.compiler.scope import Code, Forms, Scope


def _binary(node: Any, scope: Scope) -> Code:
    if node.op == "Pipe":
        return calls.pipe(node, scope)
    return expressions.logical(node, scope) if node.op in {"And", "Or"} else expressions.binary(node, scope)


FORMS: Final = Forms(
    expressions={
        IntLit: expressions.literal,
        FloatLit: expressions.literal,
        StringLit: expressions.literal,
        BoolLit: expressions.literal,
        DecimalLit: expressions.decimal_literal,
        Ident: expressions.name,
        ObjectLit: expressions.object_literal,
        ListLit: expressions.list_literal,
        TupleLit: expressions.tuple_literal,
        Binary: _binary,
        Unary: expressions.unary,
        Try: expressions.try_,
        With: expressions.with_,
        Call: calls.call,
        MethodCall: calls.method_call,
        FieldAccess: expressions.field_access,
        IndexAccess: expressions.index_access,
        Match: branches.match,
        If: branches.if_,
        For: branches.for_,
        Lambda: functions.lambda_,
        Spawn: calls.spawn,
        Block: branches.block_expression,
        SideEffect: functions.side_effect,
        WorkflowVersion: branches.workflow_version,
        View: calls.view,
        SelfClosingView: calls.self_closing_view,
    },
    statements={
        Let: blocks.let,
        Assign: assign,
        Return: blocks.return_,
        While: blocks.while_,
        Loop: blocks.loop,
        Break: blocks.break_,
        Continue: blocks.continue_,
        ExprStatement: blocks.expression_statement,
    },
)
