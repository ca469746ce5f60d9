"""The types of what a program declares."""

from collections.abc import Iterable, Sequence
from typing import Final

from mens_pipeline.language.ast.behaviour import Activity, Actor, Handler, Workflow
from mens_pipeline.language.ast.data import Field, ImportPath, Table, TypeDef, Url, Variant
from mens_pipeline.language.ast.functions import Function
from mens_pipeline.language.ast.types import DecimalType, FunctionType, GenericType, NamedType, Param
from mens_pipeline.language.ast.types import Type as Syntax
from mens_pipeline.language.ast.ui import Fragment, ReactiveComponent, V0Component
from mens_pipeline.language.names.built_ins import GENERIC_TYPES, PLAIN_TYPES, VARIANTS
from mens_pipeline.language.names.declarations import Binding, ModuleNames
from mens_pipeline.language.names.references import ROW_FIELDS
from mens_pipeline.language.types.signatures import MEMBER_TYPES, built_in_type
from mens_pipeline.language.types.terms import DEC, UNIT, UNKNOWN, Callable, Named, Namespace, Type, Variable

_PLAIN: Final = frozenset(("int", "float", "str", "bool", "Unit", "Json", "Element"))
_SPELLINGS: Final = {"list": "List", "map": "Map", "float64": "float", "unit": "Unit", "dec": "dec"}
_GENERIC: Final = {"List": 1, "Option": 1, "Result": 1, "Map": 2}
_SIGNED = Function | Workflow | Activity | Handler


class DeclaredTypes:
    """The types of the declarations of one program."""

    def __init__(self, names: ModuleNames) -> None:
        """Begin without any; each is made when it is asked for."""
        self.names = names
        self._signatures: dict[int, Callable] = {}
        self._fields: dict[str, dict[str, Type] | None] = {}
        self._variants: dict[str, dict[str, tuple[Type, ...]] | None] = {}

    def of(self, node: Syntax | None, generics: Iterable[str] = (), *, as_variables: bool = False) -> Type:
        """Return the type that an annotation writes; what is not modelled is unknown.

        `generics` are types that the function around it chooses: variables, as a caller sees them, or unknown.
        """
        if isinstance(node, DecimalType):
            return DEC
        if isinstance(node, NamedType):
            return self._named(node.name, generics, as_variables=as_variables)
        if isinstance(node, GenericType):
            name = _SPELLINGS.get(node.name, node.name)
            if _GENERIC.get(name) != len(node.arguments) or name in self.names.types:
                return UNKNOWN
            return Named(name, tuple(self.of(part, generics, as_variables=as_variables) for part in node.arguments))
        if isinstance(node, FunctionType):
            parameters = tuple(self.of(part, generics, as_variables=as_variables) for part in node.parameters)
            result = self.of(node.return_type, generics, as_variables=as_variables) if node.return_type else UNIT
            return Callable(parameters, result, len(parameters))
        return UNKNOWN

    def _named(self, name: str, generics: Iterable[str], *, as_variables: bool) -> Type:
        """Return a type by its name; one declared under the name of a built-in one may be either (V10)."""
        if name in generics:
            return Variable(name) if as_variables else UNKNOWN
        is_declared = name in self.names.types
        if is_declared and name not in GENERIC_TYPES and name not in PLAIN_TYPES and name not in self.names.imported:
            return Named(name)
        name = _SPELLINGS.get(name, name)
        return Named(name) if name in _PLAIN and not is_declared else UNKNOWN

    def binding(self, binding: Binding) -> Type:
        """Return the type of a function, a constructor, an imported namespace or what is built in."""
        node = binding.node
        if node is None:
            return built_in_type(binding.name)
        if isinstance(node, ImportPath):
            path = ".".join(node.segments)
            return Namespace(path) if path in MEMBER_TYPES else UNKNOWN
        if isinstance(node, Variant):
            return self.variant(binding.name)
        if isinstance(node, Function | Workflow | Activity):
            return self.signature(node)
        return UNKNOWN

    def signature(self, node: _SIGNED) -> Callable:
        """Return what a function takes and gives, as its callers see it."""
        known = self._signatures.get(id(node))
        if known is None:
            generics = node.generics if isinstance(node, Function) else ()
            result = self.of(node.return_type, generics, as_variables=True)
            known = self._signatures[id(node)] = self.parameters(node.params, result, generics)
        return known

    def parameters(self, params: Sequence[Param], result: Type, generics: Iterable[str] = ()) -> Callable:
        """Something that takes parameters."""
        types = tuple(self.of(param.type, generics, as_variables=True) for param in params)
        return Callable(types, result, _fewest(params), tuple(param.name for param in params))

    def properties(self, binding: Binding) -> tuple[dict[str, Type], frozenset[str]] | None:
        """Return what a view of a component is given.

        Returns:
            Its attributes with their types, and those that must be there; None for what takes any.
        """
        node = binding.node
        if isinstance(node, ReactiveComponent | Fragment):
            types = {param.name: self.of(param.type) for param in node.params}
            return types, frozenset(param.name for param in node.params if param.default is None)
        if isinstance(node, V0Component):
            types = {prop.name: self.of(prop.type) for prop in node.props}
            return types, frozenset(prop.name for prop in node.props if not prop.optional)
        return None

    def variant(self, name: str) -> Type:
        """Return the type of a constructor, or of a variant without payload; unknown if several types have it (V10)."""
        owners = self.names.variants.get(name, [])
        if len(owners) != 1 or name in VARIANTS:
            return UNKNOWN
        owner, variant = owners[0]
        result = self._named(owner.name, (), as_variables=False)
        if not variant.fields:
            return result
        fewest = sum(not field.optional for field in variant.fields)
        return Callable(self._types(variant.fields), result, fewest, tuple(field.name for field in variant.fields))

    def _types(self, fields: Sequence[Field]) -> tuple[Type, ...]:
        """Return the types of the fields of a variant; one that may be left out is given as it is or as an Option."""
        return tuple(UNKNOWN if field.optional else self.of(field.type) for field in fields)

    def variants(self, type_: Type) -> dict[str, tuple[Type, ...]] | None:
        """Return the variants of a type with the types of their fields; None if it has none."""
        if not isinstance(type_, Named):
            return None
        if type_.name == "Option" and type_.arguments:
            return {"Some": type_.arguments, "None": ()}
        if type_.name == "Result" and type_.arguments:
            return {"Ok": type_.arguments, "Error": (UNKNOWN,)}
        if type_.name not in self._variants:
            node = self.names.types.get(type_.name)
            variants = node.variants if isinstance(node, TypeDef | Url) else ()
            self._variants[type_.name] = {v.name: self._types(v.fields) for v in variants} or None
        return self._variants[type_.name]

    def fields(self, type_: Type) -> dict[str, Type] | None:
        """Return the fields of a struct or of a record of a table; None if it has none."""
        if not isinstance(type_, Named):
            return None
        if type_.name not in self._fields:
            node = self.names.types.get(type_.name)
            fields = node.fields if isinstance(node, TypeDef | Table) else ()
            has_fields = isinstance(node, Table) or fields
            self._fields[type_.name] = {field.name: self.of(field.type) for field in fields} if has_fields else None
        return self._fields[type_.name]

    def is_table(self, type_: Type) -> bool:
        """Return whether a type is that of the records of a table."""
        return isinstance(type_, Named) and type_.name in self.names.tables

    def is_struct(self, type_: Type) -> bool:
        """Return whether a type is declared and has fields."""
        return self.fields(type_) is not None

    def is_sum(self, type_: Type) -> bool:
        """Return whether a type is declared and has variants."""
        return isinstance(type_, Named) and type_.name in self.names.types and self.variants(type_) is not None

    def readable(self, type_: Type) -> dict[str, Type] | None:
        """Return the fields that can be read of a struct or of a record of a table, those of every record included."""
        fields = self.fields(type_)
        if fields is not None and self.is_table(type_):
            return dict.fromkeys(ROW_FIELDS, UNKNOWN) | fields
        return fields

    def handlers(self, actor: str) -> dict[str, Callable]:
        """Return the events of an actor."""
        node = self.names.values[actor].node
        assert isinstance(node, Actor)  # noqa: S101 - its handle was made from the name of an actor
        return {handler.event: self.signature(handler) for handler in node.handlers}


def _fewest(params: Sequence[Param]) -> int:
    """Return arguments up to the last parameter without a default (C3)."""
    return max((index for index, param in enumerate(params, 1) if param.default is None), default=0)
