"""Type rules of blocks, `if`, `match`, `for` and lambdas (B3-B5, K1-K5), and the values that a `match` misses."""

from typing import Final

from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code, Severity
from mens_pipeline.language.names.declarations import VARIANTS, Span
from mens_pipeline.language.types.checker import ANYTHING, Checker, Wanted
from mens_pipeline.language.types.declared import DeclaredTypes, is_definite, join_types
from mens_pipeline.language.types.terms import (
    BOOL,
    INT,
    NEVER,
    STR,
    UNIT,
    UNKNOWN,
    Callable,
    Nominal,
    Type,
    format_type,
    settle,
)


def side_effect(checker: Checker, node: ast.SideEffect, _expected: Type) -> Type:
    """Type `side_effect` as a separate function that is called immediately (U2)."""
    with checker.function(ANYTHING):
        found = checker.block(node.statements)
    return UNKNOWN if found == NEVER else found


def if_(checker: Checker, node: ast.If, wanted: Wanted) -> Type:
    """Type `if` as the join of its branches, or as Unit without `else` (B4)."""
    checker.expect(node.condition, Wanted(BOOL, "the condition of `if`"))
    if node.otherwise is None:
        checker.block(node.then)
        checker.compare(node, UNIT, wanted)
        return UNIT
    then = checker.block(node.then, wanted)
    return join_types(then, checker.block(node.otherwise, wanted), checker.declared)


def for_(checker: Checker, node: ast.For, _expected: Type) -> Type:
    """Type `for` as a list of the values of its body (B5)."""
    found = checker.infer(node.iterable)
    element: Type = UNKNOWN
    if isinstance(found, Nominal) and found.name in {"List", "Rows"} and found.arguments:
        element = settle(found.arguments[0])
    elif is_definite(found):
        advice = "Call it, or give it a list." if isinstance(found, Callable) else None
        checker.report(Code.TYPE_MISMATCH, node.iterable, f"`for` takes a list, found `{format_type(found)}`", advice)
    checker.bind(checker.resolution.declared.get(id(node)), element)
    checker.bind(checker.resolution.indexes.get(id(node)), INT)
    if node.key is not None:
        checker.infer(node.key)
    body = checker.infer(node.body)
    return Nominal("List", (settle(body),))


def lambda_(checker: Checker, node: ast.Lambda, expected: Type) -> Type:
    """Type a lambda; parameters without an annotation get the types expected at its place."""
    given = expected.parameters if isinstance(expected, Callable) else ()
    types = []
    for index, param in enumerate(node.params):
        hint = given[index] if index < len(given) else UNKNOWN
        types.append(parameter(checker, param, hint))
    declared = checker.declared.of(node.return_type)
    with checker.function(Wanted(declared, "the result of the lambda")):
        # A Unit lambda may drop its value.
        kept = UNKNOWN if declared == UNIT else declared
        found = checker.expect(node.body, Wanted(kept, "the result of the lambda"))
    fewest = sum(param.default is None for param in node.params)
    result = declared if is_definite(declared) else found
    # An early `return` may have another type.
    return Callable(tuple(types), UNKNOWN if result == NEVER else result, fewest, tuple(p.name for p in node.params))


def parameter(checker: Checker, param: ast.Param, hint: Type = UNKNOWN) -> Type:
    """Bind a parameter, and return its type: the annotation, or else the hint."""
    declared = checker.declared.of(param.type, checker.generics)
    type_ = declared if param.type is not None else hint
    if param.default is not None:
        checker.expect(param.default, Wanted(declared, f"the default of `{param.name}`"))
    checker.bind(checker.resolution.declared.get(id(param)), type_)
    return type_


def match(checker: Checker, node: ast.Match, wanted: Wanted) -> Type:
    """Type `match` as the join of its arms, which must cover all values of the subject (K1)."""
    subject = checker.infer(node.subject)
    if not is_definite(subject):
        subject = _type_with_arms(checker, node)
    elif isinstance(subject, Nominal) and subject.name in {"Rows", "Found"}:
        subject = _table_type(node, subject)
    found: Type = NEVER
    for arm in node.arms:
        pattern(checker, arm.pattern, subject)
        found = join_types(found, checker.expect(arm.body, wanted), checker.declared)
    _check_arms(checker, node, subject)
    return found


def _table_type(node: ast.Match, subject: Nominal) -> Type:
    """Return the type of a query as its arms use it, because the reference has a Result instead."""
    names = {arm.pattern.name for arm in node.arms if isinstance(arm.pattern, ast.ConstructorPattern)}
    inner = subject if subject.name == "Rows" else Nominal("Option", (subject.arguments[0],))
    return Nominal("Result", (inner,)) if names & {"Ok", "Error", "Err"} else inner


def _type_with_arms(checker: Checker, node: ast.Match) -> Type:
    for arm in node.arms:
        name = arm.pattern.name if isinstance(arm.pattern, ast.ConstructorPattern | ast.IdentPattern) else ""
        owners = checker.declared.names.variants.get(name, [])
        if len(owners) == 1 and name not in VARIANTS:
            type_ = checker.declared.variant(name)
            return type_.result if isinstance(type_, Callable) else type_
    return UNKNOWN


def _check_arms(checker: Checker, node: ast.Match, subject: Type) -> None:
    coverage = ArmCoverage(checker.declared)
    for arm in node.arms:
        if coverage.is_covered(arm.pattern):
            message = "this arm is never reached: those above it take everything that it takes"
            checker.findings.add(Code.UNREACHABLE_ARM, arm.pattern, message, None, Severity.WARNING)
        coverage.add(arm.pattern)
    missing = coverage.missing(subject)
    if missing is not None:
        place = Span(node.start, node.start + len("match"))
        advice = "Add an arm for it, or `_ => ...`."
        checker.report(Code.MISSING_VARIANT, place, f"no arm of this `match` takes `{missing}`", advice)


def pattern(checker: Checker, node: ast.Pattern, subject: Type) -> None:
    """Type the names of a pattern, and compare it with its subject."""
    if isinstance(node, ast.IdentPattern):
        binding = checker.resolution.declared.get(id(node))
        if binding is None:
            _check_variant(checker, node.name, 0, node, subject)
        else:
            checker.bind(binding, subject)
            if node.name[0].isupper() and checker.declared.is_sum(subject):
                _check_variant(checker, node.name, 0, node, subject)
    elif isinstance(node, ast.ConstructorPattern):
        types = _check_variant(checker, node.name, len(node.fields), node, subject)
        for index, part in enumerate(node.fields):
            pattern(checker, part, types[index] if index < len(types) else UNKNOWN)
    elif isinstance(node, ast.TuplePattern):
        _tuple(checker, node, subject)
    elif isinstance(node, ast.LiteralPattern):
        literal = INT if isinstance(node.value, int) else STR
        if is_definite(subject) and subject != literal:
            message = f"this pattern is `{format_type(literal)}`, but what is matched is `{format_type(subject)}`"
            checker.report(Code.TYPE_MISMATCH, node, message)


def _tuple(checker: Checker, node: ast.TuplePattern, subject: Type) -> None:
    types: tuple[Type, ...] = ()
    if isinstance(subject, Nominal) and subject.name == "Tuple":
        types = subject.arguments
        if len(types) != len(node.elements):
            message = f"this pattern has {len(node.elements)} elements, the tuple {len(types)}"
            checker.report(Code.TYPE_MISMATCH, node, message)
    elif is_definite(subject):
        checker.report(Code.TYPE_MISMATCH, node, f"a tuple pattern never matches `{format_type(subject)}`")
    for index, part in enumerate(node.elements):
        pattern(checker, part, types[index] if index < len(types) else UNKNOWN)


def _check_variant(
    checker: Checker, written: str, num_found: int, node: ast.ConstructorPattern | ast.IdentPattern, subject: Type
) -> tuple[Type, ...]:
    name = written if written in checker.declared.names.variants else canonical(written)
    place = Span(node.start, node.start + len(written))
    variants = checker.declared.variants(subject)
    if variants is None:
        if is_definite(subject):
            message = f"the variant `{written}` never matches `{format_type(subject)}`"
            checker.report(Code.UNKNOWN_VARIANT, place, message)
            return ()
        # The subject is unknown, but perhaps only one type has this variant.
        num_fields = checker.declared.names.num_fields(name)
        if num_fields is not None:
            _check_count(checker, name, num_fields, num_found, node)
        type_ = checker.declared.variant(name)
        return type_.parameters if isinstance(type_, Callable) else ()
    if name not in variants:
        message = f"`{format_type(subject)}` has no variant `{written}`"
        checker.report_unknown(Code.UNKNOWN_VARIANT, place, message, written, variants)
        return ()
    _check_count(checker, written, len(variants[name]), num_found, node)
    return variants[name]


def _check_count(
    checker: Checker, name: str, expected: int, found: int, node: ast.ConstructorPattern | ast.IdentPattern
) -> None:
    if expected != found:
        message = f"`{name}` has {expected} field{'s' * (expected != 1)}, its pattern {found}"
        checker.report(Code.WRONG_ARGUMENT_COUNT, node, message)


_MOST_STEPS: Final = 2000
"""Comparisons before a `match` counts as complete: nested patterns can take exponential time."""


def canonical(name: str) -> str:
    """Resolve the aliases `Err` for `Error` and `null` for `None` (V11, V12)."""
    return {"Err": "Error", "null": "None"}.get(name, name)


class ArmCoverage:
    """The values that the arms of one `match` cover."""

    def __init__(self, declared: DeclaredTypes) -> None:
        self._declared = declared
        self._rows: list[tuple[ast.Pattern, ...]] = []
        self._simple: set[object] = set()
        self._takes_all = False
        self._steps = 0

    def add(self, pattern: ast.Pattern) -> None:
        if self._is_any(pattern):
            self._takes_all = True
        key = self._key(pattern)
        if key is not None:
            self._simple.add(key)
        self._rows.append((pattern,))

    def is_covered(self, pattern: ast.Pattern) -> bool:
        """Return whether the arms so far match every value that a pattern matches."""
        return self._takes_all or self._key(pattern) in self._simple

    def missing(self, subject: Type) -> str | None:
        """Return a pattern for a value that no arm matches; None if all values are covered, or this is unknown."""
        if self._takes_all or not self._rows:
            return None
        found = self._missing(self._rows, (subject,))
        return None if found is None else found[0]

    def _is_any(self, pattern: ast.Pattern) -> bool:
        """Return whether a pattern matches everything: `_`, or a lower-case name that is not a variant (K2)."""
        if isinstance(pattern, ast.IdentPattern):
            return not self._declared.names.is_variant(pattern.name) and not pattern.name[0].isupper()
        return isinstance(pattern, ast.WildcardPattern)

    def _key(self, pattern: ast.Pattern) -> object | None:
        if isinstance(pattern, ast.LiteralPattern):
            return (type(pattern.value), pattern.value)
        if isinstance(pattern, ast.IdentPattern):
            return self._name(pattern)
        if isinstance(pattern, ast.ConstructorPattern) and all(map(self._is_any, pattern.fields)):
            return self._name(pattern)
        return None

    def _name(self, pattern: ast.ConstructorPattern | ast.IdentPattern) -> str:
        return pattern.name if pattern.name in self._declared.names.variants else canonical(pattern.name)

    def _missing(self, rows: list[tuple[ast.Pattern, ...]], types: tuple[Type, ...]) -> tuple[str, ...] | None:
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
            inner = [part for row in rows if (part := self._open_row(row, name, len(fields))) is not None]
            left = self._missing(inner, (*fields, *rest))
            if left is not None:
                return (_write_pattern(name, left[: len(fields)]), *left[len(fields) :])
        return None

    def _constructors(self, type_: Type, rows: list[tuple[ast.Pattern, ...]]) -> dict[str, tuple[Type, ...]] | None:
        if isinstance(type_, Nominal) and type_.name == "Tuple":
            return {"": type_.arguments}
        variants = self._declared.variants(type_)
        if variants is None and type_ == UNKNOWN and not self._is_literal(rows):
            return self._variants_with(rows)
        return variants

    def _is_literal(self, rows: list[tuple[ast.Pattern, ...]]) -> bool:
        return any(isinstance(row[0], ast.LiteralPattern) for row in rows)

    def _variants_with(self, rows: list[tuple[ast.Pattern, ...]]) -> dict[str, tuple[Type, ...]] | None:
        """Return the variants of a column of unknown type, if a variant in it belongs to only one type."""
        for row in rows:
            name = self._name(row[0]) if isinstance(row[0], ast.ConstructorPattern | ast.IdentPattern) else ""
            if isinstance(row[0], ast.TuplePattern):
                return {"": (UNKNOWN,) * len(row[0].elements)}
            if name in {"Some", "None"} and name not in self._declared.names.variants:
                return {"Some": (UNKNOWN,), "None": ()}
            if name in {"Ok", "Error"} and name not in self._declared.names.variants:
                return {"Ok": (UNKNOWN,), "Error": (UNKNOWN,)}
            owners = self._declared.names.variants.get(name, [])
            if len(owners) == 1:
                return self._declared.variants(Nominal(owners[0][0].name))
        return None

    def _open_row(self, row: tuple[ast.Pattern, ...], name: str, num_fields: int) -> tuple[ast.Pattern, ...] | None:
        head = row[0]
        if self._is_any(head):
            return (*[ast.WildcardPattern(head.start, head.end)] * num_fields, *row[1:])
        if isinstance(head, ast.TuplePattern):
            return (*head.elements, *row[1:]) if len(head.elements) == num_fields else None
        if isinstance(head, ast.ConstructorPattern) and self._name(head) == name and len(head.fields) == num_fields:
            return (*head.fields, *row[1:])
        is_bare = isinstance(head, ast.IdentPattern) and self._name(head) == name
        return row[1:] if is_bare and num_fields == 0 else None


def _write_pattern(name: str, fields: tuple[str, ...]) -> str:
    if not name:
        return f"({', '.join(fields)})"
    return f"{name}({', '.join(fields)})" if fields else name
