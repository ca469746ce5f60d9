"""The bodies of declarations, one after the other."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from mens_pipeline.language.ast.behaviour import Activity, Actor, Form, Handler, Workflow
from mens_pipeline.language.ast.data import Const
from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.ast.functions import WRAPPERS, Function, Test
from mens_pipeline.language.ast.ui import Fragment, ReactiveComponent, ReactiveMember, ReactiveModule
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.declarations import ModuleNames
from mens_pipeline.language.names.findings import Findings
from mens_pipeline.language.names.resolver import Resolution
from mens_pipeline.language.types.branches import parameter
from mens_pipeline.language.types.checker import ANYTHING, Checker, Wanted
from mens_pipeline.language.types.declared import DeclaredTypes
from mens_pipeline.language.types.statements import FORMS
from mens_pipeline.language.types.terms import BOOL, UNIT
from mens_pipeline.language.vocabulary import LLM_DECORATORS

if TYPE_CHECKING:
    from mens_pipeline.language.ast.expressions import Expr
    from mens_pipeline.language.ast.statements import Statement

_FIRST: Final = (Const, ReactiveModule)
"""Declarations whose types the others need, in so far as they are not written."""


def check(module: Module, names: ModuleNames, resolution: Resolution, findings: Findings) -> None:
    """Find the types of a program, and what does not fit."""
    checker = Checker(DeclaredTypes(names), resolution, findings, FORMS)
    ordered = sorted(module.declarations, key=lambda declaration: not isinstance(declaration, _FIRST))
    for declaration in ordered:
        if findings.is_full:
            return
        if isinstance(declaration, Test) and declaration.function.params:
            message = f"a test takes no parameters, found {len(declaration.function.params)}"
            findings.add(Code.WRONG_ARGUMENT_COUNT, declaration.function.params[0], message, "Use `@forall`.")
        inner = declaration.function if isinstance(declaration, WRAPPERS) else declaration
        handle = _FORMS.get(type(inner))
        if handle is not None:
            handle(checker, inner)


def _function(checker: Checker, node: Function) -> None:
    checker.generics = node.generics
    is_left_to_others = node.extern_module is not None or (
        not node.body and any(decorator.name in LLM_DECORATORS for decorator in node.decorators)
    )
    _body(checker, node, node.name, is_left_to_others=is_left_to_others)
    for decorator in node.decorators:
        if decorator.condition is not None:
            binding = checker.resolution.declared.get(id(decorator))
            checker.bind(binding, checker.declared.of(node.return_type, node.generics))
            checker.expect(decorator.condition, Wanted(BOOL, f"the condition of `{decorator.name}`"))
    checker.generics = ()


def _body(
    checker: Checker,
    node: Function | Workflow | Activity | Handler,
    name: str,
    *,
    is_left_to_others: bool = False,
) -> None:
    """Check parameters, result and body; in a body that is not there, nothing can be missing."""
    for param in node.params:
        parameter(checker, param)
    if is_left_to_others:
        return
    reason = f"the result of `{name}`"
    type_ = checker.declared.of(node.return_type, checker.generics)
    ending = ANYTHING if type_ == UNIT else Wanted(type_, reason, is_result=True)
    with checker.function(Wanted(type_, reason)):
        checker.block(node.body, ending)
        if not node.body:
            checker.compare(node, UNIT, ending)


def _work(checker: Checker, node: Workflow | Activity) -> None:
    _body(checker, node, node.name)


def _actor(checker: Checker, node: Actor) -> None:
    for handler in node.handlers:
        _body(checker, handler, handler.event)


def _const(checker: Checker, node: Const) -> None:
    declared = checker.declared.of(node.type)
    found = checker.expect(node.value, Wanted(declared, f"the value of `{node.name}`"))
    checker.bind(checker.declared.names.values.get(node.name), found if node.type is None else declared)


def _component(checker: Checker, node: ReactiveComponent) -> None:
    for param in node.params:
        parameter(checker, param)
    _members(checker, node.members)
    if node.view is not None:
        checker.infer(node.view)


def _members(checker: Checker, members: Sequence[ReactiveMember]) -> None:
    """Check members: what is written of state is known everywhere, the rest from its own place on."""
    for member in members:
        if member.type is not None:
            checker.bind(checker.resolution.declared.get(id(member)), checker.declared.of(member.type))
    for member in members:
        if member.role == "statement":
            checker.statement(cast("Statement", member.body))
        elif member.name is None:
            checker.infer(cast("Expr", member.body))
        else:
            declared = checker.declared.of(member.type)
            wanted = Wanted(declared, f"the value of `{member.name}`")
            found = checker.expect(cast("Expr", member.body), wanted)
            if member.type is None:
                checker.bind(checker.resolution.declared.get(id(member)), found)


def _fragment(checker: Checker, node: Fragment) -> None:
    for param in node.params:
        parameter(checker, param)
    checker.infer(node.body)


def _form(checker: Checker, node: Form) -> None:
    for field in node.fields:
        if field.default is not None:
            wanted = Wanted(checker.declared.of(field.type), f"the default of `{field.name}`")
            checker.expect(field.default, wanted)


_FORMS: Final[dict[type, Callable[[Checker, Any], None]]] = {
    Function: _function,
    Workflow: _work,
    Activity: _work,
    Actor: _actor,
    Const: _const,
    ReactiveComponent: _component,
    ReactiveModule: lambda checker, node: _members(checker, node.members),
    Fragment: _fragment,
    Form: _form,
}
"""Declarations with expressions in them."""
