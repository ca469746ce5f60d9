"""The walk that finds the types of expressions; how each form is typed is handed in."""

from collections.abc import Callable as Function
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from mens_pipeline.language.ast.base import Node
from mens_pipeline.language.ast.expressions import Expr, For
from mens_pipeline.language.ast.statements import Statement
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.declarations import Binding
from mens_pipeline.language.names.findings import Findings, Place
from mens_pipeline.language.names.resolver import Resolution
from mens_pipeline.language.suggestions import did_you_mean
from mens_pipeline.language.types.declared import DeclaredTypes
from mens_pipeline.language.types.fitting import fits
from mens_pipeline.language.types.terms import NEVER, UNIT, UNKNOWN, Type, settled, text_of


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
        """Return the type of an expression.

        What is expected is a hint for literals and lambdas.
        """
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
            self._types[binding] = settled(type_)

    def type_of(self, binding: Binding) -> Type:
        """Return the type of a name."""
        known = self._types.get(binding)
        if known is None:
            known = self._types[binding] = self.declared.binding(binding)
        return known

    def used(self, node: Node) -> Binding | None:
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
