"""Looking names up: each use finds its declaration, or is a finding."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mens_pipeline.language.ast.base import Node, children
from mens_pipeline.language.ast.statements import Statement
from mens_pipeline.language.ast.types import FunctionType, GenericType, NamedType, Param, Type
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.built_ins import GENERIC_TYPES, METHOD_NAMES, PLAIN_TYPES
from mens_pipeline.language.names.declarations import Binding, Kind, ModuleNames
from mens_pipeline.language.names.findings import Findings, Place
from mens_pipeline.language.suggestions import FOREIGN_WORDS, did_you_mean, near_miss
from mens_pipeline.language.vocabulary import VIEW_TAGS


class Scopes:
    """The names visible at the place that a walk has reached."""

    def __init__(self, outermost: dict[str, Binding]) -> None:
        """Begin at the level of the module."""
        self._visible = dict(outermost)
        self._hidden: list[tuple[str, Binding | None]] = []
        self.in_loop = False

    @contextmanager
    def block(self, *, in_loop: bool | None = None) -> Iterator[None]:
        """Enter a block: what is declared there ends with it (B1).

        By default `break` has a loop to act on where it has one around the block.
        """
        mark, was_in_loop = len(self._hidden), self.in_loop
        if in_loop is not None:
            self.in_loop = in_loop
        yield
        self.in_loop = was_in_loop
        while len(self._hidden) > mark:
            name, before = self._hidden.pop()
            if before is None:
                del self._visible[name]
            else:
                self._visible[name] = before

    def declare(self, binding: Binding) -> None:
        """Make a name visible, which may shadow any other (B2)."""
        self._hidden.append((binding.name, self._visible.get(binding.name)))
        self._visible[binding.name] = binding

    def find(self, name: str) -> Binding | None:
        """Return the nearest meaning of a name."""
        return self._visible.get(name)

    def names(self) -> tuple[str, ...]:
        """Return all names that mean something here."""
        return tuple(self._visible)


Forms = dict[type, "Callable[[Resolver, Any], None]"]
"""Class of syntax -> how its names are resolved; handed in, because the forms need the walk and the walk the forms."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Declarations of the names of a program, by the `id` of the syntax that uses them.

    Attributes:
        uses: Name or view -> its meaning.
        declared: Pattern, parameter, loop or decorator -> what it declares.
        indexes: Loop -> its second name.
    """

    uses: dict[int, Binding] = field(default_factory=dict)
    declared: dict[int, Binding] = field(default_factory=dict)
    indexes: dict[int, Binding] = field(default_factory=dict)


class Resolver:
    """A walk through bodies that knows at every place which names are visible."""

    def __init__(self, names: ModuleNames, findings: Findings, forms: Forms) -> None:
        """Begin at the level of the module."""
        self._forms = forms
        self.names = names
        self.findings = findings
        self.scopes = Scopes(names.values)
        self.resolution = Resolution()
        self._generics: frozenset[str] = frozenset()
        self.foreign_tables: set[str] = set()
        """Tables of a program that declares none: those of another file of its project."""
        self._unknown_types: list[tuple[str, Place]] = []

    def finish(self) -> None:
        """Report the types that are none; one that names a table of another file is left alone."""
        names = self.names
        known = (*names.types, *names.imported, *GENERIC_TYPES, *PLAIN_TYPES)
        for name, place in self._unknown_types:
            if name not in self.foreign_tables:
                self.findings.add(Code.UNKNOWN_TYPE, place, f"no type is called `{name}`", did_you_mean(name, known))

    def function(
        self,
        params: Sequence[Param],
        return_type: Type | None,
        body: Sequence[Statement],
        generics: Iterable[str] = (),
    ) -> None:
        """Resolve a function; parameters are visible from the next default on (C3)."""
        self._generics = frozenset(generics)
        with self.scopes.block(in_loop=False):
            self.parameters(params)
            self.type(return_type)
            self.block(body)
        self._generics = frozenset()

    def parameters(self, params: Sequence[Param]) -> None:
        """Declare parameters here."""
        seen: set[str] = set()
        for param in params:
            self.type(param.type)
            if param.default is not None:
                self.visit(param.default)
            if param.name in seen:
                self.findings.add(Code.DUPLICATE_DECLARATION, param, f"the parameter `{param.name}` stands twice")
            seen.add(param.name)
            self.declare(param, Binding(param.name, Kind.PARAMETER, param))

    def declare(self, node: Node, binding: Binding) -> None:
        """Declare a local name."""
        self.resolution.declared[id(node)] = binding
        self.scopes.declare(binding)

    def block(self, statements: Sequence[Statement]) -> None:
        """Resolve a block in a scope of its own."""
        with self.scopes.block():
            for statement in statements:
                self.visit(statement)

    def visit(self, node: Node) -> None:
        """Resolve an expression or a statement; if it has no form of its own, its parts."""
        form = self._forms.get(type(node))
        if form is not None:
            form(self, node)
            return
        for child in children(node):
            self.visit(child)

    def type(self, node: Type | None) -> None:
        """Look up the names of a type."""
        if isinstance(node, NamedType):
            self.type_name(node.name, node)
        elif isinstance(node, GenericType):
            self.type_name(node.name, node, len(node.arguments))
            for argument in node.arguments:
                self.type(argument)
        elif isinstance(node, FunctionType):
            for parameter in node.parameters:
                self.type(parameter)
            self.type(node.return_type)

    def type_name(self, name: str, place: Node, num_arguments: int = 0) -> None:
        """Look up the name of a type.

        `num_arguments` types stand behind it in brackets.
        """
        names = self.names
        if name in self._generics or name in names.types or name in names.imported or name.isdigit():
            return
        if name in names.assumed and name not in GENERIC_TYPES:
            return
        expected = GENERIC_TYPES.get(name)
        if expected is not None and num_arguments > expected:
            message = f"`{name}` takes {expected} type{'s' * (expected > 1)} in brackets, found {num_arguments}"
            self.findings.add(Code.WRONG_ARGUMENT_COUNT, place, message)
        if name not in GENERIC_TYPES and name not in PLAIN_TYPES:
            self._unknown_types.append((name, Place(place.start, place.start + len(name))))

    def outside_name(self, name: str, holder: Node, what: str, known: Iterable[str]) -> None:
        """Look up a name that may just as well belong to another file of a project."""
        if name in known or name in self.names.imported or name in self.names.assumed:
            return
        advice = near_miss(name, known)
        if advice is not None:
            message = f"no {what} `{name}` is known here"
            self.findings.add(Code.UNKNOWN_NAME, self.findings.name_in(holder, name), message, advice)

    def value_name(self, name: str, place: Node | Place, what: str = "name") -> Binding | None:
        """Return what the name of a value means; None where it means nothing."""
        binding = self.scopes.find(name)
        if binding is None and not self.may_be_foreign(name):
            message = f"no {what} `{name}` is known here"
            self.findings.add(Code.UNKNOWN_NAME, place, message, self._advice(name))
        return binding

    def may_be_foreign(self, name: str) -> bool:
        """Return whether a name may be declared elsewhere: it is assumed, or may be a variant of a missing module."""
        return name in self.names.assumed or (self.names.is_open and name[0].isupper())

    def _advice(self, name: str) -> str | None:
        if name in FOREIGN_WORDS:
            return FOREIGN_WORDS[name]
        if name in self.names.types:
            return "It is a type: write a record as `{ field: value }`, a variant by its own name."
        if name in VIEW_TAGS and len(name) > 1:  # `a`, `b` and `p` are more often names of other things
            return f"A view takes what it shows in braces: `{name}() {{ ... }}`."
        if name in METHOD_NAMES:
            return f"`{name}` is a method: write `value.{name}(...)`."
        return did_you_mean(name, self.scopes.names())
