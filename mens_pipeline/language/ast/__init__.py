"""The typed, frozen syntax tree: `from mens_pipeline.language import ast`, then `ast.Binary`.

Each name is listed, because `code_version` does not follow `import *`.
"""

# ruff: noqa: F401
# isort: off
from mens_pipeline.language.ast.nodes import (
    ConstructorPattern, DecimalType, FunctionType, GenericType, IdentPattern, InferType, LiteralPattern, NamedType,
    Node, Param, Pattern, TuplePattern, Type, WildcardPattern, children, field_names, walk,
)  # fmt: skip
from mens_pipeline.language.ast.declarations import (
    Const, Declaration, Field, Fragment, Import, ImportPath, Index, MachineState, Module, ReactiveComponent,
    ReactiveMember, ReactiveModule, Route, Routes, StateField, StateMachine, StyleRule, Table, Transition, TypeDef,
    Url, V0Component, Variant,
)  # fmt: skip
from mens_pipeline.language.ast.nodes import (
    Argument, Assign, Attribute, Binary, Block, BoolLit, Break, Call, Continue, DecimalLit, Expr, ExprStatement,
    FieldAccess, FloatLit, For, Ident, If, IndexAccess, IntLit, Lambda, Let, ListLit, Loop, Match, MatchArm,
    MethodCall, ObjectField, ObjectLit, Return, SelfClosingView, SideEffect, Spawn, Statement, StringLit, Try,
    TupleLit, Unary, View, While, With, WorkflowVersion,
)  # fmt: skip
from mens_pipeline.language.ast.declarations import (
    Activity, Actor, ArgumentValue, BackButton, Decorator, DecoratorArgument, DeepLink, DesignToken, Endpoint,
    Forall, Form, FormField, Function, Handler, Loading, McpResource, McpTool, Push, Scheduled, Test, Tokens,
    WRAPPERS, Workflow,
)  # fmt: skip
