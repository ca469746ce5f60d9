"""A text made ready to run: its names first, then constants, afresh for every test (C1, C9, T4)."""

from collections.abc import Iterator, Sequence

from mens_pipeline.language.ast.behaviour import Activity, Actor, Workflow
from mens_pipeline.language.ast.data import Const, Import, ImportPath, Table, TypeDef, Url
from mens_pipeline.language.ast.data import Variant as VariantSyntax
from mens_pipeline.language.ast.declarations import Declaration, Module
from mens_pipeline.language.ast.functions import WRAPPERS, Forall, Function, Loading, Test
from mens_pipeline.language.ast.statements import Statement
from mens_pipeline.language.ast.types import Param
from mens_pipeline.language.ast.ui import Fragment, ReactiveComponent, V0Component
from mens_pipeline.language.interpreter import database, values
from mens_pipeline.language.interpreter.compiler import functions
from mens_pipeline.language.interpreter.compiler.assertions import ASSERTIONS
from mens_pipeline.language.interpreter.compiler.blocks import block
from mens_pipeline.language.interpreter.compiler.forms import FORMS
from mens_pipeline.language.interpreter.compiler.functions import Plan, plan_of
from mens_pipeline.language.interpreter.compiler.scope import Code, ModuleScope, Scope
from mens_pipeline.language.interpreter.contracts import guarded, has_contract
from mens_pipeline.language.interpreter.library.builtins import BUILT_INS, PREDEFINED_VARIANTS
from mens_pipeline.language.interpreter.limits import Features
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import Refusal, TextName
from mens_pipeline.language.interpreter.values import Refused, Value
from mens_pipeline.language.vocabulary import LLM_DECORATORS

_INTERFACE = ReactiveComponent | Fragment | V0Component


class Program:
    """The declarations of one text, ready to run on a machine."""

    def __init__(
        self, module: Module, text: TextName, machine: Machine, features: Features, below: "Program | None" = None
    ) -> None:
        """Register what the text declares.

        The names of `below` are seen, unless the text declares them itself, and `below` does not see those of the text.
        """
        self._below = below
        self._constants = [d for d in module.declarations if isinstance(d, Const)]
        self.variants: dict[str, int] = dict(PREDEFINED_VARIANTS if below is None else below.variants)
        self.tables: dict[str, Value] = {} if below is None else dict(below.tables)
        self.names: dict[str, Value] = {}
        self._scope = ModuleScope(text, machine, self.names, self.variants, features, FORMS)
        self._declared: dict[str, Value] = {}
        self._declare_all(module.declarations)
        self.tests = {d.function.name: d for d in module.declarations if isinstance(d, Test | Forall)}
        """Name -> test or property; the last of equal names (T2)."""

    def begin(self) -> None:
        """Make all names what they are before a test: declarations first, then constants in their order.

        Raises:
            VoxError: A constant has no value.
        """
        self.names.clear()
        self.names.update(BUILT_INS)
        if self._below is not None:
            self._below.begin()
            self.names.update(self._below.names)
        self.names.update(self._declared)
        for constant in self._constants:
            self.names[constant.name] = self._value_of(constant)

    def define(self, name: str, value: Value) -> None:
        """Give a name another value than the text does, from the next `begin` on.

        Functions of the text that use the name mean the new value.
        """
        self._declared[name] = value

    def redefine(self, declaration: Declaration) -> None:
        """Declare a function anew, in place of that of the same name, from the next `begin` on."""
        self._declare_function(declaration)

    def _value_of(self, constant: Const) -> Value:
        """Compute a constant as a function without parameters, called once, so that `?` has something to leave."""

        def compile_body(scope: Scope) -> Code:
            code, cost = scope.stretch(constant.value)
            self._scope.machine.charge(cost)
            return code

        scope = Scope.outermost(self._scope)
        function = functions.Function(constant.name, (), lambda: plan_of((), scope, compile_body), [])
        return function.invoke(self._scope.machine, [])

    def _declare_all(self, declarations: Sequence[Declaration]) -> None:
        if self._scope.features.database:
            tables: dict[str, Value] = {d.name: database.Table(d.name) for d in declarations if isinstance(d, Table)}
            self.tables |= tables
            self._declared["db"] = values.Namespace("db", self.tables)
        self._declared.update(map(_import, _imported(declarations)))
        for declaration in declarations:
            self._declare_type(declaration)
        for declaration in declarations:
            self._declare_function(declaration)
        for name in ASSERTIONS:
            self._declared.pop(name, None)

    def _declare_type(self, declaration: Declaration) -> None:
        if isinstance(declaration, TypeDef | Url):
            for variant in declaration.variants:
                self._declare_variant(variant)
        elif isinstance(declaration, _INTERFACE):
            self._declared[declaration.name] = Refused(Refusal.INTERFACE, declaration.name)

    def _declare_variant(self, variant: VariantSyntax) -> None:
        """Declare a variant; a predefined one that is declared again stays what it is (V10)."""
        fields = tuple(field.name for field in variant.fields)
        if PREDEFINED_VARIANTS.get(variant.name) == len(fields):
            return
        self.variants[variant.name] = len(fields)
        made = values.Constructor(variant.name, fields) if fields else values.Variant(variant.name)
        self._declared[variant.name] = made

    def _declare_function(self, declaration: Declaration) -> None:
        if isinstance(declaration, Workflow | Activity):
            function = self._function(declaration.name, declaration.params, declaration.body)
            self._declared[declaration.name] = function
            return
        if isinstance(declaration, Actor):
            handlers = {h.event: self._function(h.event, h.params, h.body) for h in declaration.handlers}
            self._declared[declaration.name] = values.Actor(declaration.name, handlers)
            return
        syntax = declaration.function if isinstance(declaration, WRAPPERS) else declaration
        if isinstance(syntax, Function):
            refusal = Refusal.INTERFACE if isinstance(declaration, Loading) else _refusal_of(syntax)
            self._declared[syntax.name] = (
                Refused(refusal, syntax.name) if refusal is not None else self._declared_function(syntax)
            )

    def _declared_function(self, syntax: Function) -> functions.Function:
        if not (self._scope.features.check_contracts and has_contract(syntax)):
            return self._function(syntax.name, syntax.params, syntax.body)

        def compile_body(scope: Scope) -> Code:
            return guarded(syntax, scope, lambda inner: block(syntax.body, inner, is_function_body=True))

        scope = Scope.outermost(self._scope)
        return functions.Function(syntax.name, syntax.params, lambda: plan_of(syntax.params, scope, compile_body), [])

    def _function(self, name: str, params: Sequence[Param], body: Sequence[Statement]) -> functions.Function:
        def make() -> Plan:
            scope = Scope.outermost(self._scope)
            return plan_of(params, scope, lambda inner: block(body, inner, is_function_body=True))

        return functions.Function(name, params, make, [])


def _refusal_of(function: Function) -> Refusal | None:
    """Return functions that somebody else would have to carry out."""
    if function.extern_module is not None:
        return Refusal.EXTERN
    is_llm = any(decorator.name in LLM_DECORATORS for decorator in function.decorators)
    return Refusal.MODEL if is_llm and not function.body else None


def _imported(declarations: Sequence[Declaration]) -> Iterator[ImportPath]:
    for declaration in declarations:
        if isinstance(declaration, Import):
            yield from declaration.paths


def _import(path: ImportPath) -> tuple[str, Value]:
    """Return the name an import brings in and its value; all but built-in namespaces is out of reach."""
    name = path.alias or path.segments[-1]
    if path.alias is None and name in BUILT_INS:
        return name, BUILT_INS[name]
    value = BUILT_INS.get(path.segments[0]) if path.root == "symbol" else None
    for segment in path.segments[1:]:
        value = value.members.get(segment) if type(value) is values.Namespace else None
    return name, value if value is not None else Refused(Refusal.IMPORT, name)
