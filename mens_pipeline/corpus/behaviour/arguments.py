"""Draw typed, seeded arguments for observing a function, many at the edges of their types and of the code."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import combinations
from random import Random
from typing import Final

from mens_pipeline.language import ast
from mens_pipeline.language.interpreter import NONE, SmallestDraws, Value, VariantValue, error, ok, some

_INTS: Final = (0, 1, 2, 3, 4, 5, 7, 10, 12, -1, -2, -5)
_FLOATS: Final = (0.0, 1.0, -1.0, 0.5, 2.5, 10.0, -0.25, 99.5)
_DECIMALS: Final = tuple(map(Decimal, ("0.00", "1.00", "-1.00", "0.50", "2.75", "10.00", "19.99", "100.00")))
_WORDS: Final = ("", "a", "b", "abc", "Ann", "hello", "Vox", "level", "x1", "42", "hello world", " pad ", "A-b", "aab")
_PIECES: Final = ("a", "b", "Ann", "x1", "1", "2", "7", "10", "42")
"""Words to join with separators from the code, as inputs of functions that split text."""
_LONGEST_SEPARATOR: Final = 2
_MOST_LITERALS: Final = 24
"""Most literals of a program to use; thousands would not reveal more of its edges."""
_MOST_STRING: Final = 24  # characters of the longest literal to use
_MOST_INT: Final = 10**9
_MOST_PAIRED: Final = 4
"""Ints of the code to combine: differences and products are edge cases of sums and common multiples."""
_MOST_PRODUCT: Final = 1_000
_MOST_LEVELS: Final = 2
"""Levels of user types with free choice of variants; deeper ones take the smallest variant."""
_LIST_NAMES: Final = frozenset(("List", "list"))
_EMPTY_NAMES: Final = _LIST_NAMES | {"Option"}  # types that have an empty value
_PLAIN: Final = frozenset(("int", "float", "bool", "str"))


class UndrawableError(Exception):
    """No values of a parameter's type can be drawn."""


class Drawing:
    """Draws argument lists for functions of one program."""

    def __init__(self, module: ast.Module) -> None:
        declared = module.declarations
        self._structs = {d.name: d.fields for d in declared if isinstance(d, ast.TypeDef | ast.Table) and d.fields}
        self._sums = {d.name: d.variants for d in declared if isinstance(d, ast.TypeDef | ast.Url) and d.variants}
        self._heights = self._find_heights()
        self.literal_share = 1 / 2
        """Share of numbers and strings drawn from the code's literals, if it has any."""
        self._deck: list[int] = []
        self._ints, self._floats, self._decimals, self._strings = _literals(module)

    def lists(self, params: Sequence[ast.Param], generics: Sequence[str], seed: str) -> Iterator[tuple[Value, ...]]:
        """Yield argument lists without end, the smallest first; the same seed gives the same lists.

        Type parameters, `generics`, get ints. Raises `UndrawableError` for a parameter without a type, or with a type
        that has no known values, such as a function type.
        """
        types = [_concrete(param.type, generics) for param in params]
        for annotation in types:
            if not self._is_drawable(annotation):
                raise UndrawableError
        yield tuple(self._draw(annotation, SmallestDraws(), 0) for annotation in types)  # no literals of the code
        random = Random(seed)  # noqa: S311 - a reproducible draw, no secret
        keys = [type_key(annotation) for annotation in types]
        self._deck = []
        while True:
            values = [self._draw(annotation, random, 0) for annotation in types]
            if len(values) > 1 and random.random() < 0.5:  # noqa: PLR2004 - a coin
                _relate(values, keys, random)
            yield tuple(values)

    def _find_heights(self) -> dict[str, float]:
        heights = dict.fromkeys((*self._structs, *self._sums), math.inf)
        while True:
            found = {name: 1 + min(_variant_height(v, heights) for v in vs) for name, vs in self._sums.items()}
            found |= {name: 1 + max(_height(f.type, heights) for f in fs) for name, fs in self._structs.items()}
            if found == heights:
                return heights
            heights = found

    def _is_drawable(self, annotation: ast.Type) -> bool:
        if isinstance(annotation, ast.GenericType) and annotation.name in _EMPTY_NAMES:
            return len(annotation.arguments) == 1 and self._is_drawable(annotation.arguments[0])
        return _height(annotation, self._heights) < math.inf

    def _draw(self, annotation: ast.Type, random: Random, level: int) -> Value:
        if isinstance(annotation, ast.DecimalType):
            return self._number(_DECIMALS, self._decimals, random)
        if isinstance(annotation, ast.GenericType):
            return self._drawn_generic(annotation, random, level)
        name = getattr(annotation, "name", "")
        if name == "bool":
            return random.random() < 1 / 2
        if name == "float":
            return self._number(_FLOATS, self._floats, random)
        if name in _PLAIN:
            return self._int(random) if name == "int" else self._string(random)
        if name in self._structs:
            return {field.name: self._draw(field.type, random, level + 1) for field in self._structs[name]}
        variants: Sequence[ast.Variant] = self._sums[name]
        if level >= _MOST_LEVELS:
            least = min(_variant_height(variant, self._heights) for variant in variants)
            variants = [variant for variant in variants if _variant_height(variant, self._heights) == least]
        drawable = [variant for variant in variants if _variant_height(variant, self._heights) < math.inf]
        variant = random.choice(drawable)
        return VariantValue(variant.name, tuple(self._draw(field.type, random, level + 1) for field in variant.fields))

    def _ends(self, inner: ast.Type, level: int) -> bool:
        """Return whether to draw an empty list or option, so that a deep type ends."""
        goes_on = isinstance(inner, ast.GenericType) or getattr(inner, "name", "") in self._heights
        return (level > _MOST_LEVELS and goes_on) or not self._is_drawable(inner)

    def _drawn_generic(self, annotation: ast.GenericType, random: Random, level: int) -> Value:
        name, inner = annotation.name, annotation.arguments[-1]
        if name in _LIST_NAMES:
            most = 5 if level == 0 else 2
            num_elements = 0 if self._ends(inner, level) else random.randint(0, most)
            return [self._draw(inner, random, level + 1) for _ in range(num_elements)]
        if name == "Option":
            is_none = random.random() < 1 / 4 or self._ends(inner, level)
            return NONE if is_none else some(self._draw(inner, random, level + 1))
        if name == "Result":
            value = annotation.arguments[0]
            if random.random() < 2 / 3:
                return ok(self._draw(value, random, level + 1))
            is_text = len(annotation.arguments) == 1
            return error(random.choice(("bad input", "not found")) if is_text else self._draw(inner, random, level + 1))
        keys = random.sample(("a", "b", "key", "Ann", *self._strings), random.randint(0, 3))
        return {key: self._draw(inner, random, level + 1) for key in keys}

    def _int(self, random: Random) -> int:
        coin = random.random()
        if coin < self.literal_share and self._ints:
            if not self._deck:
                self._deck = random.sample(self._ints, len(self._ints))
            return self._deck.pop()
        if coin < self.literal_share + 1 / 4:
            return random.choice(_INTS)
        return random.randint(-20, 120) if coin < 7 / 8 else random.randint(0, 20)

    def _number(self, edges: Sequence[Value], read: Sequence[Value], random: Random) -> Value:
        return random.choice(read if read and random.random() < self.literal_share else edges)

    def _string(self, random: Random) -> str:
        coin = random.random()
        if coin >= self.literal_share or not self._strings:
            return random.choice(_WORDS)
        literal = random.choice(self._strings)
        word = random.choice(_WORDS)
        if len(literal) <= _LONGEST_SEPARATOR and random.random() < 3 / 4:
            return literal.join(random.choices((*_PIECES, *self._strings), k=random.randint(2, 4)))
        forms = (literal, literal, literal + word, word + literal, word + literal + random.choice(_WORDS))
        return random.choice((*forms, literal.upper(), literal[:-1]))


def _height(annotation: ast.Type, heights: Mapping[str, float]) -> float:
    if isinstance(annotation, ast.GenericType):
        inner = [_height(argument, heights) for argument in annotation.arguments]
        if annotation.name in _EMPTY_NAMES and len(inner) == 1:
            return 0
        if annotation.name == "Result" and len(inner) in {1, 2}:
            return max(inner)
        is_map = annotation.name in {"Map", "map"} and len(inner) == 2  # noqa: PLR2004 - key and value
        return inner[1] if is_map and type_key(annotation.arguments[0]) == "str" else math.inf
    name = getattr(annotation, "name", "")
    return 0 if name in _PLAIN or isinstance(annotation, ast.DecimalType) else heights.get(name, math.inf)


def _variant_height(variant: ast.Variant, heights: Mapping[str, float]) -> float:
    return max((_height(field.type, heights) for field in variant.fields), default=0)


def type_key(annotation: ast.Type | None, generics: Sequence[str] = ()) -> str:
    """Return a key that is equal for equal types; type parameters count as ints."""
    if isinstance(annotation, ast.GenericType):
        name = {"list": "List", "map": "Map"}.get(annotation.name, annotation.name)
        return f"{name}[{', '.join(type_key(argument, generics) for argument in annotation.arguments)}]"
    if isinstance(annotation, ast.NamedType):
        return "int" if annotation.name in generics else annotation.name
    return "dec" if isinstance(annotation, ast.DecimalType) else "?"


def _concrete(annotation: ast.Type | None, generics: Sequence[str]) -> ast.Type:
    if annotation is None:
        raise UndrawableError
    if isinstance(annotation, ast.NamedType) and annotation.name in generics:
        return ast.NamedType(annotation.start, annotation.end, "int")
    if isinstance(annotation, ast.GenericType):
        arguments = tuple(_concrete(argument, generics) for argument in annotation.arguments)
        return ast.GenericType(annotation.start, annotation.end, annotation.name, arguments)
    return annotation


def _relate(values: list[Value], keys: Sequence[str], random: Random) -> None:
    """Make one argument depend on another, to exercise code that compares or searches."""
    target, other = random.sample(range(len(values)), 2)
    value, is_part = values[other], random.random() < 1 / 2
    alike = [leaf for leaf in _leaves(value) if type(leaf) is type(values[target])]
    if keys[target] == keys[other] == "str" and is_part:
        first = random.randrange(len(value) + 1)
        values[target] = value[first : random.randint(first, len(value))]
    elif keys[target] == "int" and type(value) is list and is_part:
        values[target] = random.randint(0, len(value))
    elif keys[target] == keys[other] == "int":
        values[target] = random.choice((value, value, value + 1, value - 1, 2 * value, 3 * value))
    elif keys[target] == keys[other]:
        values[target] = value
    elif alike:
        values[target] = random.choice(alike)


def _leaves(value: Value) -> Iterator[Value]:
    if type(value) is list:
        parts: Iterable[Value] = value
    elif type(value) is dict:
        parts = value.values()
    elif type(value) is VariantValue:
        parts = value.fields
    else:
        yield value
        return
    for part in parts:
        yield from _leaves(part)


def _literals(module: ast.Module) -> tuple[tuple[int, ...], tuple[float, ...], tuple[Decimal, ...], tuple[str, ...]]:
    ints: dict[int, None] = {}
    floats: dict[float, None] = {}
    decimals: dict[Decimal, None] = {}
    strings: dict[str, None] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.IntLit | ast.StringLit | ast.LiteralPattern):
            if isinstance(node.value, int):
                ints.setdefault(node.value)
            elif 0 < len(node.value) <= _MOST_STRING:
                strings.setdefault(node.value)
        elif isinstance(node, ast.ObjectField):
            strings.setdefault(node.key)
        elif isinstance(node, ast.FloatLit):
            floats.setdefault(node.value)
        elif isinstance(node, ast.DecimalLit):
            decimals.setdefault(Decimal(node.text))
    some_ints = [value for value in ints if value <= _MOST_INT][:_MOST_LITERALS]
    near = dict.fromkeys(other for value in some_ints for other in (value, value - 1, value + 1, -value))
    pairs = list(combinations(sorted(some_ints[:_MOST_PAIRED]), 2))
    near |= dict.fromkeys(other for a, b in pairs for other in (b - a, b - a - 1, a * b) if other <= _MOST_PRODUCT)
    return (
        tuple(near),
        tuple(other for value in [*floats][:_MOST_LITERALS] for other in (value, value - 0.5, value + 0.5)),
        tuple(other for value in [*decimals][:_MOST_LITERALS] for other in (value, value - 1, value + 1)),
        tuple(strings)[:_MOST_LITERALS],
    )
