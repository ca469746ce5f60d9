"""The names that a program declares, the built-in names, and the findings about them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code, Diagnostic, Severity, SourceText
from mens_pipeline.language.interpreter.compiler.expressions import ASSERTIONS
from mens_pipeline.language.interpreter.library.builtins import BUILT_INS, METHODS, PREDEFINED_VARIANTS

VALUES: Final = frozenset((*BUILT_INS, *ASSERTIONS, "path", "workflow_wait", "workflow_wait_signal"))
"""Built-in functions, constructors and namespaces (F1, F10); the interpreter does not run the last three."""

VARIANTS: Final[dict[str, int]] = {**PREDEFINED_VARIANTS, "Err": 1, "null": 0}
"""Variant -> number of its fields, as patterns may write them (V10-V12)."""

PLAIN_TYPES: Final = frozenset(
    (
        *("int", "float", "float64", "dec", "str", "bool", "char", "Unit", "unit", "never", "any", "Json", "Element"),
        *("Regex", "Match", "Request", "Response", "JsonBody", "KeyboardEvent", "Any", "bytes"),
    )
)
"""Types without arguments."""

GENERIC_TYPES: Final[dict[str, int | None]] = {
    **dict.fromkeys(("List", "list", "Option", "Set", "set", "Stream", "Id"), 1),
    **dict.fromkeys(("Map", "map"), 2),
    **dict.fromkeys(("Result", "Vec", "Tensor", "Tuple")),
}
"""Type -> number of its arguments, None if it varies."""

METHOD_NAMES: Final = frozenset(name for methods in METHODS.values() for name in methods)
"""Names of all methods in the library."""


MAX_FINDINGS = 100
"""Findings reported for one program."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a text, in characters."""

    start: int
    end: int


class Findings:
    """The findings of one program."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._found: dict[tuple[int, Code], tuple[Span, str, str | None, Severity]] = {}

    @property
    def is_full(self) -> bool:
        """Whether further findings are ignored."""
        return len(self._found) >= MAX_FINDINGS

    def add(
        self,
        code: Code,
        place: ast.Node | Span,
        message: str,
        advice: str | None = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Add a finding, once per offset and code: the target of `x += e` is visited twice (A5)."""
        if not self.is_full:
            self._found.setdefault((place.start, code), (Span(place.start, place.end), message, advice, severity))

    def name_in(self, node: ast.Node, name: str) -> Span:
        """Return the span of a declared name: after `fn`, else its first occurrence, else the whole node."""
        word = re.escape(name)
        for pattern in (rf"\bfn\s+({word})\b", rf"\b({word})\b"):
            found = re.compile(pattern).search(self._source, node.start, node.end)
            if found is not None:
                return Span(found.start(1), found.end(1))
        return Span(node.start, node.end)

    def text(self, place: ast.Node | Span) -> str:
        return self._source[place.start : place.end]

    def member(self, before: ast.Node, node: ast.Node, name: str) -> Span:
        start = self._source.find(name, before.end, node.end)
        return Span(start, start + len(name))

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        text = SourceText(self._source)
        ordered = sorted(self._found.items(), key=lambda entry: (entry[0][0], entry[0][1]))
        return tuple(
            Diagnostic(severity, code, message, text.position(place.start), text.position(place.end), advice)
            for (_start, code), (place, message, advice, severity) in ordered
        )


class NameKind(StrEnum):
    """Kind of a declared name, as messages call it."""

    BUILT_IN = "built-in"
    IMPORT = "import"
    FUNCTION = "function"
    CONSTANT = "constant"
    VARIANT = "variant"
    INTERFACE = "component"
    ACTOR = "actor"
    STATE = "state"
    DERIVED = "derived value"
    PARAMETER = "parameter"
    VARIABLE = "variable"
    LOOP = "loop variable"
    PATTERN = "name of a pattern"
    RESULT = "result"


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One meaning of a name, compared by identity; `node` is None for built-in names."""

    name: str
    kind: NameKind
    node: ast.Node | None
    mutable: bool = False


class Scopes:
    """The names visible at the current place of a walk."""

    def __init__(self, outermost: dict[str, Binding]) -> None:
        self._visible = dict(outermost)
        self._hidden: list[tuple[str, Binding | None]] = []
        self.in_loop = False

    @contextmanager
    def block(self, *, in_loop: bool | None = None) -> Iterator[None]:
        """Enter a block, and drop its declarations at its end (B1); `in_loop` defaults to the outer block."""
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
        """Make a name visible; it may shadow any other (B2)."""
        self._hidden.append((binding.name, self._visible.get(binding.name)))
        self._visible[binding.name] = binding

    def find(self, name: str) -> Binding | None:
        return self._visible.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(self._visible)


@dataclass(slots=True)
class ModuleNames:
    """The names of one program.

    `values` are functions, constants, constructors, components and built-in values; the last one of a name counts
    (C1). `variants` maps each variant to its types. `is_open` tells whether an unknown module is imported: any
    upper-case name may be one of its variants. `assumed` names are declared elsewhere, with unknown types.
    """

    values: dict[str, Binding] = field(default_factory=dict)
    types: dict[str, ast.TypeDef | ast.Table | ast.Url] = field(default_factory=dict)
    tables: dict[str, ast.Table] = field(default_factory=dict)
    variants: dict[str, list[tuple[ast.TypeDef | ast.Url, ast.Variant]]] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)
    is_open: bool = False
    assumed: frozenset[str] = frozenset()

    def num_fields(self, variant: str) -> int | None:
        """Return the number of fields of a variant; None if it is unknown or ambiguous."""
        owners = self.variants.get(variant)
        if owners is None:
            return VARIANTS.get(variant)
        numbers = {len(found.fields) for _owner, found in owners}
        return numbers.pop() if len(numbers) == 1 else None

    def is_variant(self, name: str) -> bool:
        return name in self.variants or name in VARIANTS


def collect_names(module: ast.Module, assumed: frozenset[str] = frozenset()) -> ModuleNames:
    names = ModuleNames({name: Binding(name, NameKind.BUILT_IN, None) for name in VALUES}, assumed=assumed)
    for declaration in module.declarations:
        for path in declaration.paths if isinstance(declaration, ast.Import) else ():
            _import(path, names)
    for declaration in module.declarations:
        if isinstance(declaration, ast.Table):
            names.types[declaration.name] = names.tables[declaration.name] = declaration
        elif isinstance(declaration, ast.TypeDef | ast.Url):
            names.types[declaration.name] = declaration
            for variant in declaration.variants:
                names.variants.setdefault(variant.name, []).append((declaration, variant))
    for declaration in module.declarations:
        for binding in value_bindings(declaration):
            before = names.values.get(binding.name)
            is_both = before is not None and is_page_and_place(before, binding)
            names.values[binding.name] = Binding(binding.name, NameKind.IMPORT, None) if is_both else binding
    return names


def is_page_and_place(one: Binding, other: Binding) -> bool:
    """Return whether these are a component and a variant, which may share a name: pages and `url` variants do."""
    return {one.kind, other.kind} == {NameKind.VARIANT, NameKind.INTERFACE}


def _import(path: ast.ImportPath, names: ModuleNames) -> None:
    local = path.alias or path.segments[-1]
    names.imported.add(local)
    if path.root != "symbol" or path.segments[0] not in BUILT_INS:
        names.is_open = names.is_open or path.root == "symbol"
    if path.alias is not None or local not in VALUES:
        names.values[local] = Binding(local, NameKind.IMPORT, path)


def value_bindings(declaration: ast.Declaration) -> Iterator[Binding]:
    if isinstance(declaration, ast.TypeDef | ast.Url):
        yield from (Binding(variant.name, NameKind.VARIANT, variant) for variant in declaration.variants)
    elif isinstance(declaration, ast.Const):
        yield Binding(declaration.name, NameKind.CONSTANT, declaration)
    elif isinstance(declaration, ast.Actor):
        yield Binding(declaration.name, NameKind.ACTOR, declaration)
    elif isinstance(declaration, ast.ReactiveComponent | ast.Fragment | ast.V0Component | ast.Form):
        yield Binding(declaration.name, NameKind.INTERFACE, declaration)
    elif isinstance(declaration, ast.ReactiveModule):
        yield from reactive_bindings(declaration)
    elif isinstance(declaration, ast.Workflow | ast.Activity):
        yield Binding(declaration.name, NameKind.FUNCTION, declaration)
    else:
        function = declaration.function if isinstance(declaration, ast.WRAPPERS) else declaration
        if isinstance(function, ast.Function):
            yield Binding(function.name, NameKind.FUNCTION, function)


def reactive_bindings(holder: ast.ReactiveModule | ast.ReactiveComponent) -> Iterator[Binding]:
    """Yield the state and derived values of a component or a reactive module; only state is mutable."""
    for member in holder.members:
        if member.name is not None:
            kind = NameKind.STATE if member.role == "state" else NameKind.DERIVED
            yield Binding(member.name, kind, member, mutable=kind is NameKind.STATE)
