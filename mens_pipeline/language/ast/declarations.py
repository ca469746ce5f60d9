"""Declarations (A2): the class name of each is its kind."""

from dataclasses import dataclass

from mens_pipeline.language.ast.base import Node
from mens_pipeline.language.ast.behaviour import Activity, Actor, BackButton, DeepLink, Form, Push, Tokens, Workflow
from mens_pipeline.language.ast.data import Const, Import, Index, StateMachine, Table, TypeDef, Url
from mens_pipeline.language.ast.functions import (
    Endpoint,
    Forall,
    Function,
    Loading,
    McpResource,
    McpTool,
    Scheduled,
    Test,
)
from mens_pipeline.language.ast.ui import Fragment, ReactiveComponent, ReactiveModule, Routes, V0Component

Declaration = (
    Function
    | Import
    | Const
    | TypeDef
    | Table
    | Index
    | ReactiveComponent
    | ReactiveModule
    | Fragment
    | V0Component
    | Routes
    | Url
    | StateMachine
    | Workflow
    | Activity
    | Actor
    | Test
    | Forall
    | Scheduled
    | Endpoint
    | Loading
    | McpTool
    | McpResource
    | Form
    | BackButton
    | DeepLink
    | Push
    | Tokens
)


@dataclass(frozen=True, slots=True)
class Module(Node):
    """A whole text: its declarations in source order (A1)."""

    declarations: tuple[Declaration, ...]
