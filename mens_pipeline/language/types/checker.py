"""The walk that infers types, and the comparison of arguments with parameters (C2-C4)."""

from collections.abc import Callable as Function
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language.ast.nodes import Argument, Attribute, Expr, For, Lambda, Node, Statement
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.declarations import Binding, Findings, Span
from mens_pipeline.language.names.resolver import Resolution
from mens_pipeline.language.types.declared import DeclaredTypes, fits
from mens_pipeline.language.types.terms import (
    NEVER,
    UNIT,
    UNKNOWN,
    Callable,
    Type,
    choose,
    format_type,
    settle,
    substitute,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Expected type at a place; `reason` describes the place in messages, `is_result` marks the end of a function."""

    type: Type
    reason: str
    is_result: bool = False


ANYTHING = Wanted(UNKNOWN, "")


@dataclass(frozen=True, slots=True)
class TypeRules:
    """Class of syntax -> its type rule; passed in, because the modules of the checker depend on one another.

    `nested` is for expressions that return the value of one of their parts; each part is checked separately.
    """

    plain: dict[type, Function[["Checker", Any, Type], Type]]
    nested: dict[type, Function[["Checker", Any, Wanted], Type]]
    statements: dict[type, Function[["Checker", Any, Wanted], Type]]


class Checker:
    """The types of one program, as far as they are inferred."""

    def __init__(self, declared: DeclaredTypes, resolution: Resolution, findings: Findings, forms: TypeRules) -> None:
        self.declared = declared
        self.resolution = resolution
        self.findings = findings
        self._forms = forms
        self._types: dict[Binding, Type] = {}
        self.result = ANYTHING
        """The result of the innermost function."""
        self.generics: tuple[str, ...] = ()
        """Type parameters of the current function."""

    def infer(self, node: Expr, expected: Type = UNKNOWN) -> Type:
        """Infer the type of an expression; `expected` is a hint for literals and lambdas."""
        form = self._forms.plain.get(type(node))
        if form is not None:
            return form(self, node, expected)
        return self._forms.nested[type(node)](self, node, ANYTHING)

    def expect(self, node: Expr, wanted: Wanted) -> Type:
        """Infer the type of an expression that must fit its place; branches are checked separately."""
        form = self._forms.nested.get(type(node))
        if form is not None:
            return form(self, node, wanted)
        found = self.infer(node, wanted.type)
        self.compare(node, found, wanted)
        return found

    def compare(self, node: Node, found: Type, wanted: Wanted) -> None:
        """Report a type that does not fit its place."""
        if fits(wanted.type, found, self.declared):
            return
        if wanted.is_result and (found == UNIT or isinstance(node, For)):
            message = f"{wanted.reason} is `{format_type(wanted.type)}`, but its body can end here without one"
            self.findings.add(Code.MISSING_RETURN, node, message, "Return a value on every path.")
        else:
            message = f"{wanted.reason} is `{format_type(wanted.type)}`, found `{format_type(found)}`"
            self.findings.add(Code.TYPE_MISMATCH, node, message)

    def block(self, statements: Sequence[Statement], wanted: Wanted = ANYTHING) -> Type:
        """Infer the type of a block from its last statement (B3)."""
        type_: Type = UNIT
        is_over = False
        for statement in statements:
            is_last = statement is statements[-1]
            type_ = self.statement(statement, wanted if is_last else ANYTHING)
            is_over = is_over or type_ == NEVER
        return NEVER if is_over else type_

    def statement(self, node: Statement, wanted: Wanted = ANYTHING) -> Type:
        return self._forms.statements[type(node)](self, node, wanted)

    def bind(self, binding: Binding | None, type_: Type) -> None:
        if binding is not None:
            self._types[binding] = settle(type_)

    def find_type(self, binding: Binding) -> Type:
        known = self._types.get(binding)
        if known is None:
            known = self._types[binding] = self.declared.binding(binding)
        return known

    def find_binding(self, node: Node) -> Binding | None:
        return self.resolution.uses.get(id(node))

    @contextmanager
    def function(self, result: Wanted) -> Iterator[None]:
        outer, self.result = self.result, result
        yield
        self.result = outer

    def report(self, code: Code, place: Node | Span, message: str, advice: str | None = None) -> None:
        self.findings.add(code, place, message, advice)

    def report_unknown(self, code: Code, place: Node | Span, message: str, name: str, known: Any) -> None:
        """Report an unknown name, and suggest the nearest known name."""
        if not self.findings.is_full:
            self.findings.add(code, place, message, did_you_mean(name, cast("Any", known)))


@dataclass(frozen=True, slots=True)
class Callee:
    """Callee of a call: its type, its name in messages, and the known values of its type variables."""

    type: Callable
    what: str
    chosen: dict[str, Type] = field(default_factory=dict)


def apply(checker: Checker, node: Node, callee: Callee, arguments: Sequence[Argument | Attribute]) -> Type:
    function = callee.type
    most = len(function.parameters)
    if not function.fewest <= len(arguments) <= most:
        expected = str(most) if function.fewest == most else f"{function.fewest} to {most}"
        message = f"{callee.what} takes {expected} argument{'s' * (most != 1)}, found {len(arguments)}"
        checker.report(Code.WRONG_ARGUMENT_COUNT, node, message, _parameters(function))
        for argument in arguments:
            checker.infer(argument.value)
        return substitute(function.result, {})
    # Lambdas last, because the other arguments determine their parameters.
    ordered = sorted(enumerate(arguments), key=lambda entry: isinstance(entry[1].value, Lambda))
    for index, argument in ordered:
        parameter = function.parameters[index]
        own = function.names[index] if index < len(function.names) else None
        if argument.name is not None and own not in {argument.name, f"attr_{argument.name}"}:
            instead = f"is called `{own}`" if own is not None else "has no name"
            message = f"argument {index + 1} of {callee.what} {instead}, found `{argument.name}`"
            checker.report(
                Code.WRONG_ARGUMENT_NAME, argument, message, "Arguments are taken in the order of parameters."
            )
        reason = (
            f"the argument `{own}` of {callee.what}" if own is not None else f"argument {index + 1} of {callee.what}"
        )
        found = checker.expect(argument.value, Wanted(substitute(parameter, callee.chosen), reason))
        choose(parameter, found, callee.chosen)
    return substitute(function.result, callee.chosen)


def _parameters(function: Callable) -> str | None:
    if not function.names:
        return None
    parameters = zip(function.names, function.parameters, strict=True)
    return f"Its parameters are ({', '.join(f'{name}: {format_type(type_)}' for name, type_ in parameters)})."
