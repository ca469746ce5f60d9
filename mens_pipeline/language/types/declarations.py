"""Check the bodies of declarations (B2-B6), and map every class of syntax to its type rule."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from mens_pipeline.language import ast
from mens_pipeline.language.ast.nodes import children
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.declarations import Findings, ModuleNames
from mens_pipeline.language.names.resolver import Resolution
from mens_pipeline.language.types import branches, expressions
from mens_pipeline.language.types.branches import parameter, pattern
from mens_pipeline.language.types.checker import ANYTHING, Checker, TypeRules, Wanted
from mens_pipeline.language.types.declared import DeclaredTypes, is_definite
from mens_pipeline.language.types.expressions import LITERALS, element, operation
from mens_pipeline.language.types.terms import BOOL, NEVER, UNIT, UNKNOWN, Record, Type
from mens_pipeline.language.vocabulary import LLM_DECORATORS


def let(checker: Checker, node: ast.Let, wanted: Wanted) -> Type:
    """Type `let` by its annotation, if it has one; a mutable record may gain fields."""
    name = f"`{node.pattern.name}`" if isinstance(node.pattern, ast.IdentPattern) else "this pattern"
    declared = checker.declared.of(node.type, checker.generics)
    found = checker.expect(node.value, Wanted(declared, f"the value of {name}"))
    type_ = found if node.type is None else declared
    if isinstance(type_, Record) and node.mutable:
        type_ = Record(type_.fields, is_open=True)
    pattern(checker, node.pattern, UNKNOWN if type_ == NEVER else type_)
    return _no_value(checker, node, wanted)


def assign(checker: Checker, node: ast.Assign, wanted: Wanted) -> Type:
    """Check an assignment; the target of `x += e`, which is stored as `x = x + e`, is typed once."""
    target = _assign_target(checker, node.target)
    root = node.target
    while isinstance(root, ast.FieldAccess | ast.IndexAccess):
        root = root.object
    binding = checker.find_binding(root)
    if binding is not None and not binding.mutable:
        target = UNKNOWN
    reason = f"what is assigned to `{checker.findings.text(node.target)}`"
    if isinstance(node.value, ast.Binary) and node.value.left is node.target:
        found = operation(checker, node.value, target, checker.infer(node.value.right))
        checker.compare(node.value.right, found, Wanted(target, reason))
    else:
        checker.expect(node.value, Wanted(target, reason))
    return _no_value(checker, node, wanted)


def _assign_target(checker: Checker, target: ast.Expr) -> Type:
    if not isinstance(target, ast.IndexAccess):
        return checker.infer(target)
    owner = checker.infer(target.object)
    found = element(checker, target, owner)
    return UNKNOWN if isinstance(owner, Record) else found


def _no_value(checker: Checker, node: ast.Node, wanted: Wanted) -> Type:
    checker.compare(node, UNIT, wanted)
    return UNIT


def return_(checker: Checker, node: ast.Return, _wanted: Wanted) -> Type:
    if node.value is not None:
        checker.expect(node.value, checker.result)
    elif is_definite(checker.result.type):
        checker.compare(node, UNIT, Wanted(checker.result.type, checker.result.reason, is_result=True))
    return NEVER


def while_(checker: Checker, node: ast.While, wanted: Wanted) -> Type:
    """Check `while`; code after an endless loop is unreachable."""
    checker.expect(node.condition, Wanted(BOOL, "the condition of `while`"))
    checker.block(node.body)
    is_endless = isinstance(node.condition, ast.BoolLit) and node.condition.value
    return NEVER if is_endless and not _has_break(node.body) else _no_value(checker, node, wanted)


def loop(checker: Checker, node: ast.Loop, wanted: Wanted) -> Type:
    checker.block(node.body)
    return _no_value(checker, node, wanted) if _has_break(node.body) else NEVER


def _has_break(statements: Iterable[ast.Node]) -> bool:
    pending = list(statements)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Break):
            return True
        if not isinstance(node, ast.While | ast.Loop | ast.For | ast.Lambda | ast.SideEffect):
            pending.extend(children(node))
    return False


_RULES: Final = TypeRules(
    plain={
        **dict.fromkeys(LITERALS, lambda _checker, node, _expected: LITERALS[type(node)]),
        ast.Ident: expressions.name,
        ast.ObjectLit: expressions.object_literal,
        ast.ListLit: expressions.list_literal,
        ast.TupleLit: expressions.tuple_literal,
        ast.Binary: lambda checker, node, expected: (expressions.pipe if node.op == "Pipe" else expressions.binary)(
            checker, node, expected
        ),
        ast.Unary: expressions.unary,
        ast.Try: expressions.try_,
        ast.With: expressions.with_,
        ast.Call: expressions.call,
        ast.MethodCall: expressions.method_call,
        ast.FieldAccess: expressions.field_access,
        ast.IndexAccess: lambda checker, node, _expected: element(checker, node, checker.infer(node.object)),
        ast.For: branches.for_,
        ast.Lambda: branches.lambda_,
        ast.Spawn: expressions.spawn,
        ast.SideEffect: branches.side_effect,
        ast.View: expressions.view,
        ast.SelfClosingView: expressions.view,
    },
    nested={
        ast.Block: lambda checker, node, wanted: checker.block(node.statements, wanted),
        ast.If: branches.if_,
        ast.Match: branches.match,
    },
    statements={
        ast.Let: let,
        ast.Assign: assign,
        ast.Return: return_,
        ast.While: while_,
        ast.Loop: loop,
        **dict.fromkeys((ast.Break, ast.Continue), lambda _checker, _node, _wanted: NEVER),
        ast.ExprStatement: lambda checker, node, wanted: checker.expect(node.expression, wanted),
    },
)


def check(module: ast.Module, names: ModuleNames, resolution: Resolution, findings: Findings) -> None:
    checker = Checker(DeclaredTypes(names), resolution, findings, _RULES)
    # Other declarations need the inferred types of constants and reactive modules.
    ordered = sorted(module.declarations, key=lambda one: not isinstance(one, ast.Const | ast.ReactiveModule))
    for declaration in ordered:
        if findings.is_full:
            return
        if isinstance(declaration, ast.Test) and declaration.function.params:
            message = f"a test takes no parameters, found {len(declaration.function.params)}"
            findings.add(Code.WRONG_ARGUMENT_COUNT, declaration.function.params[0], message, "Use `@forall`.")
        inner = declaration.function if isinstance(declaration, ast.WRAPPERS) else declaration
        handle = _FORMS.get(type(inner))
        if handle is not None:
            handle(checker, inner)


def _function(checker: Checker, node: ast.Function) -> None:
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
    node: ast.Function | ast.Workflow | ast.Activity | ast.Handler,
    name: str,
    *,
    is_left_to_others: bool = False,
) -> None:
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


def _actor(checker: Checker, node: ast.Actor) -> None:
    for handler in node.handlers:
        _body(checker, handler, handler.event)


def _const(checker: Checker, node: ast.Const) -> None:
    declared = checker.declared.of(node.type)
    found = checker.expect(node.value, Wanted(declared, f"the value of `{node.name}`"))
    checker.bind(checker.declared.names.values.get(node.name), found if node.type is None else declared)


def _component(checker: Checker, node: ast.ReactiveComponent) -> None:
    for param in node.params:
        parameter(checker, param)
    _members(checker, node.members)
    if node.view is not None:
        checker.infer(node.view)


def _members(checker: Checker, members: Sequence[ast.ReactiveMember]) -> None:
    """Check members; annotated types are known everywhere, inferred ones only in later members."""
    for member in members:
        if member.type is not None:
            checker.bind(checker.resolution.declared.get(id(member)), checker.declared.of(member.type))
    for member in members:
        if member.role == "statement":
            checker.statement(cast("ast.Statement", member.body))
        elif member.name is None:
            checker.infer(cast("ast.Expr", member.body))
        else:
            declared = checker.declared.of(member.type)
            wanted = Wanted(declared, f"the value of `{member.name}`")
            found = checker.expect(cast("ast.Expr", member.body), wanted)
            if member.type is None:
                checker.bind(checker.resolution.declared.get(id(member)), found)


def _fragment(checker: Checker, node: ast.Fragment) -> None:
    for param in node.params:
        parameter(checker, param)
    checker.infer(node.body)


def _form(checker: Checker, node: ast.Form) -> None:
    for field in node.fields:
        if field.default is not None:
            wanted = Wanted(checker.declared.of(field.type), f"the default of `{field.name}`")
            checker.expect(field.default, wanted)


_FORMS: Final[dict[type, Callable[[Checker, Any], None]]] = {
    ast.Function: _function,
    **dict.fromkeys((ast.Workflow, ast.Activity), lambda checker, node: _body(checker, node, node.name)),
    ast.Actor: _actor,
    ast.Const: _const,
    ast.ReactiveComponent: _component,
    ast.ReactiveModule: lambda checker, node: _members(checker, node.members),
    ast.Fragment: _fragment,
    ast.Form: _form,
}
"""Declarations that contain expressions."""
