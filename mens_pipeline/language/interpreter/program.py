"""Prepare a text to run: declare its names, then compute constants for every test (C1, C9, T4); contracts (T7)."""

from collections.abc import Sequence

from mens_pipeline.language import ast
from mens_pipeline.language.interpreter import values
from mens_pipeline.language.interpreter.arithmetic import truth
from mens_pipeline.language.interpreter.compiler.blocks import block
from mens_pipeline.language.interpreter.compiler.calls import FunctionValue, compile_function
from mens_pipeline.language.interpreter.compiler.expressions import ASSERTIONS
from mens_pipeline.language.interpreter.compiler.forms import FORMS
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, ModuleScope, Scope
from mens_pipeline.language.interpreter.compiler.views import component, mount_members, thunk
from mens_pipeline.language.interpreter.library.builtins import BUILT_INS, PREDEFINED_VARIANTS
from mens_pipeline.language.interpreter.machine import Machine, TableValue
from mens_pipeline.language.interpreter.results import ErrorKind, Features, Refusal, ReturnSignal, TextName, VoxError
from mens_pipeline.language.interpreter.values import Refused, Value
from mens_pipeline.language.vocabulary import LLM_DECORATORS

_INTERFACE = ast.ReactiveComponent | ast.Fragment | ast.V0Component


class Program:
    """The declarations of one text, ready to run on a machine.

    The text sees the names of `below`, unless it declares them itself; `below` does not see the names of the text.
    """

    def __init__(
        self, module: ast.Module, text: TextName, machine: Machine, features: Features, below: "Program | None" = None
    ) -> None:
        self._below = below
        self._members = [d for d in module.declarations if isinstance(d, ast.ReactiveModule)] if features.views else []
        self._constants = [d for d in module.declarations if isinstance(d, ast.Const)]
        self.variants: dict[str, int] = dict(PREDEFINED_VARIANTS if below is None else below.variants)
        self.tables: dict[str, Value] = {} if below is None else dict(below.tables)
        self.names: dict[str, Value] = {}
        self._scope = ModuleScope(text, machine, self.names, self.variants, features, FORMS)
        self._declared: dict[str, Value] = {}
        self._declare_all(module.declarations)
        self.tests = {d.function.name: d for d in module.declarations if isinstance(d, ast.Test | ast.Forall)}
        """Name -> test or property; the last one of a name counts (T2)."""

    def begin(self) -> None:
        """Reset all names for a test: declarations first, then constants in order."""
        self.names.clear()
        self.names.update(BUILT_INS)
        if self._below is not None:
            self._below.begin()
            self.names.update(self._below.names)
        self.names.update(self._declared)
        for constant in self._constants:
            self.names[constant.name] = thunk(constant.name, constant.value, self._scope)()
        for members in self._members:
            mount_members(members.members, self._scope)

    def declares(self, name: str) -> bool:
        """Return whether the text declares a name; it may stand for a module that another text imports."""
        return name in self._declared or any(constant.name == name for constant in self._constants)

    def define(self, name: str, value: Value) -> None:
        """Replace the value of a name, including its uses in the text, from the next `begin` on."""
        self._declared[name] = value

    def redefine(self, declaration: ast.Declaration) -> None:
        """Replace the function of the same name, from the next `begin` on."""
        self._declare_function(declaration)

    def _declare_all(self, declarations: Sequence[ast.Declaration]) -> None:
        if self._scope.features.database:
            tables: dict[str, Value] = {d.name: TableValue(d.name) for d in declarations if isinstance(d, ast.Table)}
            self.tables |= tables
            self._declared["db"] = values.Namespace("db", self.tables)
        imported = [_import(path) for d in declarations if isinstance(d, ast.Import) for path in d.paths]
        self._declared.update((n, v) for n, v in imported if self._below is None or not self._below.declares(n))
        for declaration in declarations:
            if isinstance(declaration, ast.TypeDef | ast.Url):
                for variant in declaration.variants:
                    self._declare_variant(variant)
            elif isinstance(declaration, _INTERFACE):
                shown = component(declaration, self._scope) if self._scope.features.views else None
                self._declared[declaration.name] = shown or Refused(Refusal.INTERFACE, declaration.name)
        for declaration in declarations:
            self._declare_function(declaration)
        for name in ASSERTIONS:
            self._declared.pop(name, None)

    def _declare_variant(self, variant: ast.Variant) -> None:
        """Declare a variant; a predefined one stays as it is (V10)."""
        fields = tuple(field.name for field in variant.fields)
        if PREDEFINED_VARIANTS.get(variant.name) == len(fields):
            return
        self.variants[variant.name] = len(fields)
        made = values.Constructor(variant.name, fields) if fields else values.VariantValue(variant.name)
        self._declared[variant.name] = made

    def _declare_function(self, declaration: ast.Declaration) -> None:
        if isinstance(declaration, ast.Workflow | ast.Activity):
            function = self._function(declaration.name, declaration.params, declaration.body)
            self._declared[declaration.name] = function
            return
        if isinstance(declaration, ast.Actor):
            handlers = {h.event: self._function(h.event, h.params, h.body) for h in declaration.handlers}
            self._declared[declaration.name] = values.ActorValue(declaration.name, handlers)
            return
        syntax = declaration.function if isinstance(declaration, ast.WRAPPERS) else declaration
        if isinstance(syntax, ast.Function):
            is_refused = isinstance(declaration, ast.Loading) and not self._scope.features.views
            refusal = Refusal.INTERFACE if is_refused else _find_refusal(syntax)
            has_contract = any(decorator.condition is not None for decorator in syntax.decorators)
            contract = syntax if has_contract and self._scope.features.check_contracts else None
            function = self._function(syntax.name, syntax.params, syntax.body, contract)
            self._declared[syntax.name] = function if refusal is None else Refused(refusal, syntax.name)

    def _function(
        self,
        name: str,
        params: Sequence[ast.Param],
        body: Sequence[ast.Statement],
        contract: ast.Function | None = None,
    ) -> FunctionValue:
        def compile_body(scope: Scope) -> Code:
            return block(body, scope, is_function_body=True) if contract is None else guard(contract, scope)

        return FunctionValue(
            name, params, lambda: compile_function(params, Scope.outermost(self._scope), compile_body), []
        )


def _find_refusal(function: ast.Function) -> Refusal | None:
    if function.extern_module is not None:
        return Refusal.EXTERN
    is_llm = any(decorator.name in LLM_DECORATORS for decorator in function.decorators)
    return Refusal.MODEL if is_llm and not function.body else None


def _import(path: ast.ImportPath) -> tuple[str, Value]:
    name = path.alias or path.segments[-1]
    if path.alias is None and name in BUILT_INS:
        return name, BUILT_INS[name]
    value = BUILT_INS.get(path.segments[0]) if path.root == "symbol" else None
    for segment in path.segments[1:]:
        value = value.members.get(segment) if type(value) is values.Namespace else None
    return name, value if value is not None else Refused(Refusal.IMPORT, name)


def guard(function: ast.Function, scope: Scope) -> Code:
    """Compile the body of a function with its conditions, in a scope where its parameters are declared.

    The code checks `@require` and `@invariant` at entry, `@ensure` and `@invariant` at a normal exit.
    """
    before = _conditions(function, scope, ("@require", "@invariant"))
    body = block(function.body, scope, is_function_body=True)
    after_scope = scope.child()
    slot = after_scope.declare("result", mutable=False)
    after = _conditions(function, after_scope, ("@ensure", "@invariant"))

    def run(frame: Frame) -> Value:
        for check in before:
            check(frame)
        try:
            frame[slot] = body(frame)
        except ReturnSignal as signal:
            frame[slot] = signal.value
        for check in after:
            replacement = check(frame)
            if replacement is not None:
                return replacement
        return frame[slot]

    return run


def _conditions(function: ast.Function, scope: Scope, words: Sequence[str]) -> list[Code]:
    return [
        _check(decorator, decorator.condition, scope)
        for word in words
        for decorator in function.decorators
        if decorator.name == word and decorator.condition is not None
    ]


def _check(decorator: ast.Decorator, condition: ast.Expr, scope: Scope) -> Code:
    """Compile a condition to code that returns None if it holds, or else calls the fallback or raises."""
    code, cost = scope.stretch(condition)
    machine, names, fallback = scope.module.machine, scope.module.names, decorator.fallback
    word = decorator.name

    def run(frame: Frame) -> Value:
        machine.charge(cost)
        depth = machine.depth
        try:
            if truth(code(frame), f"`{word}`"):
                return None
        except VoxError as error:
            if error.reason is not ErrorKind.UNDEFINED_NAME:
                raise scope.add_place(error, condition) from None
            machine.depth = depth
            machine.notes[f"`{word}` ignored: {error.message}"] = None
            return None
        if fallback in names:
            return names[fallback].invoke(machine, [])
        raise scope.add_place(VoxError(ErrorKind.CONTRACT_VIOLATION, f"`{word}` does not hold"), condition)

    return run
