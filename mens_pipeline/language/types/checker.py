"""The walk that finds the types of expressions, and the comparison of arguments with parameters (C2-C4)."""

from collections.abc import Callable as Function
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language.ast.base import Node
from mens_pipeline.language.ast.expressions import Argument, Attribute, Expr, For, Lambda, Statement
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.declarations import Binding, Findings, Place
from mens_pipeline.language.names.resolver import Resolution
from mens_pipeline.language.types.declared import DeclaredTypes, fits
from mens_pipeline.language.types.terms import (
    NEVER,
    UNIT,
    UNKNOWN,
    Callable,
    Type,
    choose,
    settle,
    substitute,
    text_of,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Expected type at a place.

    `reason` is what the value is for, in the words of messages; `is_result` tells whether it is the value that a
    function ends with.
    """

    type: Type
    reason: str
    is_result: bool = False


ANYTHING = Wanted(UNKNOWN, "")


@dataclass(frozen=True, slots=True)
class Forms:
    """Type rules by class of syntax; passed in, because the parts of the checker need one another.

    Attributes:
        plain: Class of expression -> its type, given what is expected.
        nested: The same for expressions whose value is that of one of their parts, which are checked one by one.
        statements: Class of statement -> the type of its value.
    """

    plain: dict[type, Function[["Checker", Any, Type], Type]]
    nested: dict[type, Function[["Checker", Any, Wanted], Type]]
    statements: dict[type, Function[["Checker", Any, Wanted], Type]]


class Checker:
    """The types of one program, as far as the walk has come."""

    def __init__(self, declared: DeclaredTypes, resolution: Resolution, findings: Findings, forms: Forms) -> None:
        """Begin with the declarations."""
        self.declared = declared
        self.resolution = resolution
        self.findings = findings
        self._forms = forms
        self._types: dict[Binding, Type] = {}
        self.result = ANYTHING
        """What the innermost function returns."""
        self.generics: tuple[str, ...] = ()
        """The types that the function around chooses."""

    def infer(self, node: Expr, expected: Type = UNKNOWN) -> Type:
        """Return the type of an expression. What is expected is a hint for literals and lambdas."""
        form = self._forms.plain.get(type(node))
        if form is not None:
            return form(self, node, expected)
        return self._forms.nested[type(node)](self, node, ANYTHING)

    def expect(self, node: Expr, wanted: Wanted) -> Type:
        """Return the type of an expression that must fit its place; of branches, each is judged for itself."""
        form = self._forms.nested.get(type(node))
        if form is not None:
            return form(self, node, wanted)
        found = self.infer(node, wanted.type)
        self.compare(node, found, wanted)
        return found

    def compare(self, node: Node, found: Type, wanted: Wanted) -> None:
        """Report a value that does not fit its place."""
        if fits(wanted.type, found, self.declared):
            return
        if wanted.is_result and (found == UNIT or isinstance(node, For)):
            message = f"{wanted.reason} is `{text_of(wanted.type)}`, but its body can end here without one"
            self.findings.add(Code.MISSING_RETURN, node, message, "Return a value on every path.")
        else:
            message = f"{wanted.reason} is `{text_of(wanted.type)}`, found `{text_of(found)}`"
            self.findings.add(Code.TYPE_MISMATCH, node, message)

    def block(self, statements: Sequence[Statement], wanted: Wanted = ANYTHING) -> Type:
        """Return the type of the value of a block: that of its last statement (B3)."""
        type_: Type = UNIT
        is_over = False
        for statement in statements:
            is_last = statement is statements[-1]
            type_ = self.statement(statement, wanted if is_last else ANYTHING)
            is_over = is_over or type_ == NEVER
        return NEVER if is_over else type_

    def statement(self, node: Statement, wanted: Wanted = ANYTHING) -> Type:
        """Return the type of the value of a statement."""
        return self._forms.statements[type(node)](self, node, wanted)

    def bind(self, binding: Binding | None, type_: Type) -> None:
        """Note the type of a local name."""
        if binding is not None:
            self._types[binding] = settle(type_)

    def type_of(self, binding: Binding) -> Type:
        """Return the type of a name."""
        known = self._types.get(binding)
        if known is None:
            known = self._types[binding] = self.declared.binding(binding)
        return known

    def binding_of(self, node: Node) -> Binding | None:
        """Return what a name or view refers to."""
        return self.resolution.uses.get(id(node))

    @contextmanager
    def function(self, result: Wanted) -> Iterator[None]:
        """Enter a function."""
        outer, self.result = self.result, result
        yield
        self.result = outer

    def report(self, code: Code, place: Node | Place, message: str, advice: str | None = None) -> None:
        """Note a finding."""
        self.findings.add(code, place, message, advice)

    def report_unknown(self, code: Code, place: Node | Place, message: str, name: str, known: Any) -> None:
        """Note a name that is not among those that would be right, with the nearest of them."""
        if not self.findings.is_full:
            self.findings.choices[place.start] = frozenset(known)
            self.findings.add(code, place, message, did_you_mean(name, cast("Any", known)))


@dataclass(frozen=True, slots=True)
class Callee:
    """Callee of a call.

    `what` is what messages call it; `chosen` is what its variables stand for, as far as it is known.
    """

    type: Callable
    what: str
    chosen: dict[str, Type] = field(default_factory=dict)


def apply(checker: Checker, node: Node, callee: Callee, arguments: Sequence[Argument | Attribute]) -> Type:
    """Type a call, and compare the number, names and types of its arguments."""
    function = callee.type
    most = len(function.parameters)
    if not function.fewest <= len(arguments) <= most:
        expected = str(most) if function.fewest == most else f"{function.fewest} to {most}"
        message = f"{callee.what} takes {expected} argument{'s' * (most != 1)}, found {len(arguments)}"
        checker.report(Code.WRONG_ARGUMENT_COUNT, node, message, _parameters(function))
        for argument in arguments:
            checker.infer(argument.value)
        return substitute(function.result, {})
    # Lambdas last: what the other arguments are decides what they are given.
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
    return f"Its parameters are ({', '.join(f'{name}: {text_of(type_)}' for name, type_ in parameters)})."
