"""Values that the arms of a `match` leave out (K1)."""

from typing import Final

from mens_pipeline.language.ast.patterns import (
    ConstructorPattern,
    IdentPattern,
    LiteralPattern,
    Pattern,
    TuplePattern,
    WildcardPattern,
)
from mens_pipeline.language.types.declared import DeclaredTypes
from mens_pipeline.language.types.terms import UNKNOWN, Named, Type

_MOST_STEPS: Final = 2000
"""Comparisons before a `match` counts as complete: nested patterns can take exponentially many."""


def canonical(name: str) -> str:
    """Return the name of a variant: `Err` means `Error`, `null` means `None` (V11, V12)."""
    return {"Err": "Error", "null": "None"}.get(name, name)


class Coverage:
    """The arms of one `match`, in order."""

    def __init__(self, declared: DeclaredTypes) -> None:
        """Begin without arms."""
        self._declared = declared
        self._rows: list[tuple[Pattern, ...]] = []
        self._simple: set[object] = set()
        self._takes_all = False
        self._steps = 0

    def add(self, pattern: Pattern) -> None:
        """Add an arm."""
        if self._is_any(pattern):
            self._takes_all = True
        key = self._key(pattern)
        if key is not None:
            self._simple.add(key)
        self._rows.append((pattern,))

    def is_covered(self, pattern: Pattern) -> bool:
        """Return whether the arms so far take all that another would."""
        return self._takes_all or self._key(pattern) in self._simple

    def missing(self, subject: Type) -> str | None:
        """Return a value that no arm takes, as a pattern; None if there is none, or if that cannot be known."""
        if self._takes_all or not self._rows:
            return None
        found = self._missing(self._rows, (subject,))
        return None if found is None else found[0]

    def _is_any(self, pattern: Pattern) -> bool:
        """Return whether it matches whatever comes: `_`, or a name that is no variant, nor looks like one (K2)."""
        if isinstance(pattern, IdentPattern):
            return not self._declared.names.is_variant(pattern.name) and not pattern.name[0].isupper()
        return isinstance(pattern, WildcardPattern)

    def _key(self, pattern: Pattern) -> object | None:
        """Return what a pattern without patterns inside tests for."""
        if isinstance(pattern, LiteralPattern):
            return (type(pattern.value), pattern.value)
        if isinstance(pattern, IdentPattern):
            return self._name(pattern)
        if isinstance(pattern, ConstructorPattern) and all(map(self._is_any, pattern.fields)):
            return self._name(pattern)
        return None

    def _name(self, pattern: ConstructorPattern | IdentPattern) -> str:
        return pattern.name if pattern.name in self._declared.names.variants else canonical(pattern.name)

    def _missing(self, rows: list[tuple[Pattern, ...]], types: tuple[Type, ...]) -> tuple[str, ...] | None:
        """Return patterns for values of some types that no row takes."""
        self._steps += len(rows)
        if not rows:
            return ("_",) * len(types)
        if not types or self._steps > _MOST_STEPS:
            return None
        head, rest = types[0], types[1:]
        is_tested = any(not self._is_any(row[0]) for row in rows)
        constructors = self._constructors(head, rows) if is_tested else None
        if constructors is None:
            if is_tested and not self._is_literal(rows):
                return None
            left = self._missing([row[1:] for row in rows if self._is_any(row[0])], rest)
            return None if left is None else ("_", *left)
        for name, fields in constructors.items():
            inner = [part for row in rows if (part := self._opened(row, name, len(fields))) is not None]
            left = self._missing(inner, (*fields, *rest))
            if left is not None:
                return (_written(name, left[: len(fields)]), *left[len(fields) :])
        return None

    def _constructors(self, type_: Type, rows: list[tuple[Pattern, ...]]) -> dict[str, tuple[Type, ...]] | None:
        if isinstance(type_, Named) and type_.name == "Tuple":
            return {"": type_.arguments}
        variants = self._declared.variants(type_)
        if variants is None and type_ == UNKNOWN and not self._is_literal(rows):
            return self._told_by(rows)
        return variants

    def _is_literal(self, rows: list[tuple[Pattern, ...]]) -> bool:
        return any(isinstance(row[0], LiteralPattern) for row in rows)

    def _told_by(self, rows: list[tuple[Pattern, ...]]) -> dict[str, tuple[Type, ...]] | None:
        """Return the variants of the type that alone has those of a column of unknown type."""
        for row in rows:
            name = self._name(row[0]) if isinstance(row[0], ConstructorPattern | IdentPattern) else ""
            if isinstance(row[0], TuplePattern):
                return {"": (UNKNOWN,) * len(row[0].elements)}
            if name in {"Some", "None"} and name not in self._declared.names.variants:
                return {"Some": (UNKNOWN,), "None": ()}
            if name in {"Ok", "Error"} and name not in self._declared.names.variants:
                return {"Ok": (UNKNOWN,), "Error": (UNKNOWN,)}
            owners = self._declared.names.variants.get(name, [])
            if len(owners) == 1:
                return self._declared.variants(Named(owners[0][0].name))
        return None

    def _opened(self, row: tuple[Pattern, ...], name: str, num_fields: int) -> tuple[Pattern, ...] | None:
        """Return a row for values of one variant, its fields in front; None if it takes none of them."""
        head = row[0]
        if self._is_any(head):
            return (*[WildcardPattern(head.start, head.end)] * num_fields, *row[1:])
        if isinstance(head, TuplePattern):
            return (*head.elements, *row[1:]) if len(head.elements) == num_fields else None
        if isinstance(head, ConstructorPattern) and self._name(head) == name and len(head.fields) == num_fields:
            return (*head.fields, *row[1:])
        is_bare = isinstance(head, IdentPattern) and self._name(head) == name
        return row[1:] if is_bare and num_fields == 0 else None


def _written(name: str, fields: tuple[str, ...]) -> str:
    if not name:
        return f"({', '.join(fields)})"
    return f"{name}({', '.join(fields)})" if fields else name
