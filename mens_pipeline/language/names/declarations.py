"""Declarations of a program: values, types and variants, each in a namespace of its own."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from mens_pipeline.language.ast.base import Node
from mens_pipeline.language.ast.behaviour import Activity, Actor, Form, Workflow
from mens_pipeline.language.ast.data import Const, Import, ImportPath, Table, TypeDef, Url, Variant
from mens_pipeline.language.ast.declarations import Declaration, Module
from mens_pipeline.language.ast.functions import WRAPPERS, Function
from mens_pipeline.language.ast.ui import Fragment, ReactiveComponent, ReactiveModule, V0Component
from mens_pipeline.language.interpreter.library.builtins import BUILT_INS
from mens_pipeline.language.names.built_ins import VALUES, VARIANTS


class Kind(StrEnum):
    """Kind of a declared name, in the words of messages."""

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
    """One meaning of a name; two of them are never equal.

    `node` is None for what is built in; `mutable` tells whether it may be assigned to (B6).
    """

    name: str
    kind: Kind
    node: Node | None
    mutable: bool = False


Owner = TypeDef | Url
"""A type that has variants."""


@dataclass(slots=True)
class ModuleNames:
    """The names of one program.

    Attributes:
        values: Functions, constants, constructors, components and what is built in, the last of each name (C1).
        types: Declared types by name, tables among them.
        tables: Tables alone, as `db` has them.
        variants: Variant -> the types that have it.
        imported: Local names of imports.
        is_open: Whether something is imported that is not at hand: its variants may be any names in upper case.
        assumed: Names that are declared where the program goes, and about which nothing else is known.
    """

    values: dict[str, Binding] = field(default_factory=dict)
    types: dict[str, TypeDef | Table | Url] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    variants: dict[str, list[tuple[Owner, Variant]]] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)
    is_open: bool = False
    assumed: frozenset[str] = frozenset()

    def num_fields(self, variant: str) -> int | None:
        """Return the number of fields of a variant; None if there is none of that name, or several that differ."""
        owners = self.variants.get(variant)
        if owners is None:
            return VARIANTS.get(variant)
        numbers = {len(found.fields) for _owner, found in owners}
        return numbers.pop() if len(numbers) == 1 else None

    def is_variant(self, name: str) -> bool:
        """Return whether any type has a variant of this name."""
        return name in self.variants or name in VARIANTS


def declared_in(module: Module, assumed: frozenset[str] = frozenset()) -> ModuleNames:
    """Collect what a program declares.

    Names of `assumed` need not be declared, because they are declared where the program goes.
    """
    names = ModuleNames({name: Binding(name, Kind.BUILT_IN, None) for name in VALUES}, assumed=assumed)
    for path in imported_paths(module.declarations):
        _import(path, names)
    for declaration in module.declarations:
        _declare_type(declaration, names)
    for declaration in module.declarations:
        for binding in value_bindings(declaration):
            before = names.values.get(binding.name)
            is_both = before is not None and is_page_and_place(before, binding)
            names.values[binding.name] = Binding(binding.name, Kind.IMPORT, None) if is_both else binding
    return names


def is_page_and_place(one: Binding, other: Binding) -> bool:
    """Return whether a component and a variant share a name, as pages and the variants of a `url` may."""
    return {one.kind, other.kind} == {Kind.VARIANT, Kind.INTERFACE}


def imported_paths(declarations: Iterable[Declaration]) -> Iterator[ImportPath]:
    """Return the paths of all imports."""
    for declaration in declarations:
        if isinstance(declaration, Import):
            yield from declaration.paths


def _import(path: ImportPath, names: ModuleNames) -> None:
    """Declare an import, unless it is a built-in namespace under its own name."""
    local = path.alias or path.segments[-1]
    names.imported.add(local)
    if path.root != "symbol" or path.segments[0] not in BUILT_INS:
        names.is_open = names.is_open or path.root == "symbol"
    if path.alias is not None or local not in VALUES:
        names.values[local] = Binding(local, Kind.IMPORT, path)


def _declare_type(declaration: Declaration, names: ModuleNames) -> None:
    if isinstance(declaration, Table):
        names.types[declaration.name] = names.tables[declaration.name] = declaration
    elif isinstance(declaration, TypeDef | Url):
        names.types[declaration.name] = declaration
        for variant in declaration.variants:
            names.variants.setdefault(variant.name, []).append((declaration, variant))


def value_bindings(declaration: Declaration) -> Iterator[Binding]:
    """Return the values that a declaration declares, in source order."""
    if isinstance(declaration, TypeDef | Url):
        yield from (Binding(variant.name, Kind.VARIANT, variant) for variant in declaration.variants)
    elif isinstance(declaration, Const):
        yield Binding(declaration.name, Kind.CONSTANT, declaration)
    elif isinstance(declaration, Actor):
        yield Binding(declaration.name, Kind.ACTOR, declaration)
    elif isinstance(declaration, ReactiveComponent | Fragment | V0Component | Form):
        yield Binding(declaration.name, Kind.INTERFACE, declaration)
    elif isinstance(declaration, ReactiveModule):
        yield from reactive_bindings(declaration)
    elif isinstance(declaration, Workflow | Activity):
        yield Binding(declaration.name, Kind.FUNCTION, declaration)
    else:
        function = declaration.function if isinstance(declaration, WRAPPERS) else declaration
        if isinstance(function, Function):
            yield Binding(function.name, Kind.FUNCTION, function)


def reactive_bindings(holder: ReactiveModule | ReactiveComponent) -> Iterator[Binding]:
    """Yield the state and derived values of a component or a reactive module; only state is assigned to."""
    for member in holder.members:
        if member.name is not None:
            kind = Kind.STATE if member.role == "state" else Kind.DERIVED
            yield Binding(member.name, kind, member, mutable=kind is Kind.STATE)
