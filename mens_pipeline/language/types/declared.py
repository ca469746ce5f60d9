"""The types of declarations, and the check whether a value of one type fits another type."""

from collections.abc import Iterable, Sequence
from typing import Final

from mens_pipeline.language import ast
from mens_pipeline.language.names.declarations import GENERIC_TYPES, PLAIN_TYPES, VARIANTS, Binding, ModuleNames
from mens_pipeline.language.names.resolver import ROW_FIELDS
from mens_pipeline.language.types.signatures import MEMBER_TYPES, built_in_type
from mens_pipeline.language.types.terms import (
    DEC,
    ELEMENT,
    FLOAT,
    INT,
    JSON,
    NEVER,
    NUMBERS,
    UNIT,
    UNKNOWN,
    Callable,
    NamespaceType,
    Nominal,
    Record,
    Type,
    Variable,
)

_PLAIN: Final = frozenset(("int", "float", "str", "bool", "Unit", "Json", "Element"))
_SPELLINGS: Final = {"list": "List", "map": "Map", "float64": "float", "unit": "Unit", "dec": "dec"}
_GENERIC: Final = {"List": 1, "Option": 1, "Result": 1, "Map": 2}
_SIGNED = ast.Function | ast.Workflow | ast.Activity | ast.Handler


class DeclaredTypes:
    """The types of the declarations of one program, computed on demand."""

    def __init__(self, names: ModuleNames) -> None:
        self.names = names
        self._signatures: dict[int, Callable] = {}
        self._fields: dict[str, dict[str, Type] | None] = {}
        self._variants: dict[str, dict[str, tuple[Type, ...]] | None] = {}

    def of(self, node: ast.Type | None, generics: Iterable[str] = (), *, as_variables: bool = False) -> Type:
        """Return the type of an annotation, unknown if it is not modelled.

        `generics` are the type parameters of the enclosing function: variables for its callers, unknown inside it.
        """
        if isinstance(node, ast.DecimalType):
            return DEC
        if isinstance(node, ast.NamedType):
            return self._type_by_name(node.name, generics, as_variables=as_variables)
        if isinstance(node, ast.GenericType):
            name = _SPELLINGS.get(node.name, node.name)
            if _GENERIC.get(name) != len(node.arguments) or name in self.names.types:
                return UNKNOWN
            return Nominal(name, tuple(self.of(part, generics, as_variables=as_variables) for part in node.arguments))
        if isinstance(node, ast.FunctionType):
            parameters = tuple(self.of(part, generics, as_variables=as_variables) for part in node.parameters)
            result = self.of(node.return_type, generics, as_variables=as_variables) if node.return_type else UNIT
            return Callable(parameters, result, len(parameters))
        return UNKNOWN

    def _type_by_name(self, name: str, generics: Iterable[str], *, as_variables: bool) -> Type:
        """Return a type by its name; unknown if it is both declared and built in (V10)."""
        if name in generics:
            return Variable(name) if as_variables else UNKNOWN
        is_declared = name in self.names.types
        if is_declared and name not in GENERIC_TYPES and name not in PLAIN_TYPES and name not in self.names.imported:
            return Nominal(name)
        name = _SPELLINGS.get(name, name)
        return Nominal(name) if name in _PLAIN and not is_declared else UNKNOWN

    def binding(self, binding: Binding) -> Type:
        """Return the type of a function, a constructor, an imported namespace or a built-in value."""
        node = binding.node
        if node is None:
            return built_in_type(binding.name)
        if isinstance(node, ast.ImportPath):
            path = ".".join(node.segments)
            return NamespaceType(path) if path in MEMBER_TYPES else UNKNOWN
        if isinstance(node, ast.Variant):
            return self.variant(binding.name)
        if isinstance(node, ast.Function | ast.Workflow | ast.Activity):
            return self.signature(node)
        return UNKNOWN

    def signature(self, node: _SIGNED) -> Callable:
        known = self._signatures.get(id(node))
        if known is None:
            generics = node.generics if isinstance(node, ast.Function) else ()
            result = self.of(node.return_type, generics, as_variables=True)
            known = self._signatures[id(node)] = self.parameters(node.params, result, generics)
        return known

    def parameters(self, params: Sequence[ast.Param], result: Type, generics: Iterable[str] = ()) -> Callable:
        types = tuple(self.of(param.type, generics, as_variables=True) for param in params)
        # A call needs arguments up to the last parameter without a default (C3).
        fewest = max((index for index, param in enumerate(params, 1) if param.default is None), default=0)
        return Callable(types, result, fewest, tuple(param.name for param in params))

    def properties(self, binding: Binding) -> tuple[dict[str, Type], frozenset[str]] | None:
        """Return the attributes of a component with their types, and the required ones; None if it accepts any."""
        node = binding.node
        if isinstance(node, ast.ReactiveComponent | ast.Fragment):
            types = {param.name: self.of(param.type) for param in node.params}
            return types, frozenset(param.name for param in node.params if param.default is None)
        if isinstance(node, ast.V0Component):
            types = {prop.name: self.of(prop.type) for prop in node.props}
            return types, frozenset(prop.name for prop in node.props if not prop.optional)
        return None

    def variant(self, name: str) -> Type:
        """Return the type of a constructor or a variant without payload; unknown if it is ambiguous (V10)."""
        owners = self.names.variants.get(name, [])
        if len(owners) != 1 or name in VARIANTS:
            return UNKNOWN
        owner, variant = owners[0]
        result = self._type_by_name(owner.name, (), as_variables=False)
        if not variant.fields:
            return result
        fewest = sum(not field.optional for field in variant.fields)
        return Callable(self._types(variant.fields), result, fewest, tuple(field.name for field in variant.fields))

    def _types(self, fields: Sequence[ast.Field]) -> tuple[Type, ...]:
        """Return the types of fields; an optional field accepts a value or an Option, so it is unknown."""
        return tuple(UNKNOWN if field.optional else self.of(field.type) for field in fields)

    def variants(self, type_: Type) -> dict[str, tuple[Type, ...]] | None:
        """Map the variants of a type to the types of their fields; return None if it has no variants."""
        if not isinstance(type_, Nominal):
            return None
        if type_.name == "Option" and type_.arguments:
            return {"Some": type_.arguments, "None": ()}
        if type_.name == "Result" and type_.arguments:
            return {"Ok": type_.arguments, "Error": (UNKNOWN,)}
        if type_.name not in self._variants:
            node = self.names.types.get(type_.name)
            variants = node.variants if isinstance(node, ast.TypeDef | ast.Url) else ()
            self._variants[type_.name] = {v.name: self._types(v.fields) for v in variants} or None
        return self._variants[type_.name]

    def fields(self, type_: Type) -> dict[str, Type] | None:
        if not isinstance(type_, Nominal):
            return None
        if type_.name not in self._fields:
            node = self.names.types.get(type_.name)
            fields = node.fields if isinstance(node, ast.TypeDef | ast.Table) else ()
            has_fields = isinstance(node, ast.Table) or fields
            self._fields[type_.name] = {field.name: self.of(field.type) for field in fields} if has_fields else None
        return self._fields[type_.name]

    def is_table(self, type_: Type) -> bool:
        return isinstance(type_, Nominal) and type_.name in self.names.tables

    def is_sum(self, type_: Type) -> bool:
        return isinstance(type_, Nominal) and type_.name in self.names.types and self.variants(type_) is not None

    def readable(self, type_: Type) -> dict[str, Type] | None:
        """Return the fields of a type, with those of every record (`ROW_FIELDS`) for a table."""
        fields = self.fields(type_)
        if fields is not None and self.is_table(type_):
            return dict.fromkeys(ROW_FIELDS, UNKNOWN) | fields
        return fields

    def handlers(self, actor: str) -> dict[str, Callable]:
        node = self.names.values[actor].node
        assert isinstance(node, ast.Actor)  # noqa: S101 - its handle was made from the name of an actor
        return {handler.event: self.signature(handler) for handler in node.handlers}


_LISTS = frozenset(("List", "Rows"))


def fits(expected: Type, found: Type, declared: DeclaredTypes) -> bool:
    """Return whether a value fits at a place; unknown types always do."""
    if expected == found or not is_definite(expected) or not is_definite(found):
        return True
    if expected == ELEMENT:
        return found != UNIT
    if isinstance(expected, Callable):
        return isinstance(found, Callable) and _calls_fit(expected, found, declared)
    if isinstance(expected, Record):
        return True
    if isinstance(found, Record):
        return _record_fits(expected, found, declared)
    if isinstance(expected, Nominal) and isinstance(found, Nominal):
        return _named_fit(expected, found, declared)
    return False


def _named_fit(expected: Nominal, found: Nominal, declared: DeclaredTypes) -> bool:
    if expected == FLOAT and found == INT:
        return True
    if found.name == "Rows" and expected.name == "Result" and expected.arguments:
        return fits(expected.arguments[0], found, declared)
    if found.name == "Found":
        return expected.name == "Result" or fits(expected, Nominal("Option", (found.arguments[0],)), declared)
    is_same = expected.name == found.name or (expected.name in _LISTS and found.name in _LISTS)
    return is_same and all(
        fits(part, argument, declared) for part, argument in zip(expected.arguments, found.arguments, strict=False)
    )


def _calls_fit(expected: Callable, found: Callable, declared: DeclaredTypes) -> bool:
    num_given = len(expected.parameters)
    if not found.fewest <= num_given <= len(found.parameters):
        return False
    parameters_fit = all(
        fits(parameter, given, declared)
        for given, parameter in zip(expected.parameters, found.parameters, strict=False)
    )
    return parameters_fit and (expected.result == UNIT or fits(expected.result, found.result, declared))


def _record_fits(expected: Type, found: Record, declared: DeclaredTypes) -> bool:
    if isinstance(expected, Nominal) and expected.name == "Map" and expected.arguments:
        return all(fits(expected.arguments[-1], type_, declared) for _name, type_ in found.fields)
    fields = declared.readable(expected)
    return fields is not None and all(
        name in fields and fits(fields[name], type_, declared) for name, type_ in found.fields
    )


def join_types(left: Type, right: Type, declared: DeclaredTypes) -> Type:
    if right in (left, NEVER):
        return left
    if left == NEVER:
        return right
    if left in NUMBERS and right in NUMBERS:
        return FLOAT
    if not isinstance(left, Nominal) or not isinstance(right, Nominal):
        return UNKNOWN
    if left.name == right.name and len(left.arguments) == len(right.arguments):
        parts = zip(left.arguments, right.arguments, strict=True)
        return Nominal(left.name, tuple(join_types(one, other, declared) for one, other in parts))
    return UNKNOWN


def is_definite(type_: Type) -> bool:
    return type_ not in (UNKNOWN, JSON, NEVER) and not isinstance(type_, Variable | NamespaceType)
