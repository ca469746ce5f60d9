"""Blocks, `if`, `match`, `for` and lambdas as expressions (B3-B5, K1-K5)."""

from mens_pipeline.language.ast.expressions import Block, For, If, Lambda, Match, SideEffect
from mens_pipeline.language.ast.patterns import (
    ConstructorPattern,
    IdentPattern,
    LiteralPattern,
    Pattern,
    TuplePattern,
)
from mens_pipeline.language.ast.types import Param
from mens_pipeline.language.diagnostics import Code, Severity
from mens_pipeline.language.names.built_ins import VARIANTS
from mens_pipeline.language.names.findings import Place
from mens_pipeline.language.types.checker import ANYTHING, Checker, Wanted
from mens_pipeline.language.types.coverage import Coverage, canonical
from mens_pipeline.language.types.fitting import is_definite, joined
from mens_pipeline.language.types.terms import (
    BOOL,
    INT,
    NEVER,
    STR,
    UNIT,
    UNKNOWN,
    Callable,
    Named,
    Type,
    list_of,
    option_of,
    result_of,
    settled,
    text_of,
)


def block(checker: Checker, node: Block, wanted: Wanted) -> Type:
    """Type a block where an expression may stand."""
    return checker.block(node.statements, wanted)


def side_effect(checker: Checker, node: SideEffect, _expected: Type) -> Type:
    """`side_effect`: a function of its own, called at once (U2)."""
    with checker.function(ANYTHING):
        found = checker.block(node.statements)
    return UNKNOWN if found == NEVER else found


def if_(checker: Checker, node: If, wanted: Wanted) -> Type:
    """`if`: the value of the branch taken, Unit if there is none (B4)."""
    checker.expect(node.condition, Wanted(BOOL, "the condition of `if`"))
    if node.otherwise is None:
        checker.block(node.then)
        checker.compare(node, UNIT, wanted)
        return UNIT
    then = checker.block(node.then, wanted)
    return joined(then, checker.block(node.otherwise, wanted), checker.declared)


def for_(checker: Checker, node: For, _expected: Type) -> Type:
    """`for`: the list of the values of its body (B5)."""
    found = checker.infer(node.iterable)
    element: Type = UNKNOWN
    if isinstance(found, Named) and found.name in {"List", "Rows"} and found.arguments:
        element = settled(found.arguments[0])
    elif is_definite(found):
        advice = "Call it, or give it a list." if isinstance(found, Callable) else None
        checker.report(Code.TYPE_MISMATCH, node.iterable, f"`for` takes a list, found `{text_of(found)}`", advice)
    checker.bind(checker.resolution.declared.get(id(node)), element)
    checker.bind(checker.resolution.indexes.get(id(node)), INT)
    if node.key is not None:
        checker.infer(node.key)
    body = checker.infer(node.body)
    return list_of(settled(body))


def lambda_(checker: Checker, node: Lambda, expected: Type) -> Type:
    """Type a lambda; what its place gives it types parameters without an annotation."""
    given = expected.parameters if isinstance(expected, Callable) else ()
    types = []
    for index, param in enumerate(node.params):
        hint = given[index] if index < len(given) else UNKNOWN
        types.append(parameter(checker, param, hint))
    declared = checker.declared.of(node.return_type)
    with checker.function(Wanted(declared, "the result of the lambda")):
        found = checker.expect(node.body, Wanted(_kept(declared), "the result of the lambda"))
    fewest = sum(param.default is None for param in node.params)
    result = declared if is_definite(declared) else found
    # What it returns early may be of another type.
    return Callable(tuple(types), UNKNOWN if result == NEVER else result, fewest, tuple(p.name for p in node.params))


def _kept(result: Type) -> Type:
    """Return the type to expect of a body; its value is dropped where nothing is returned."""
    return UNKNOWN if result == UNIT else result


def parameter(checker: Checker, param: Param, hint: Type = UNKNOWN) -> Type:
    """Return the type of a parameter, noted under its name.

    Where it is not written, its type is the hint.
    """
    declared = checker.declared.of(param.type, checker.generics)
    type_ = declared if param.type is not None else hint
    if param.default is not None:
        checker.expect(param.default, Wanted(declared, f"the default of `{param.name}`"))
    checker.bind(checker.resolution.declared.get(id(param)), type_)
    return type_


def match(checker: Checker, node: Match, wanted: Wanted) -> Type:
    """`match`: the type of all its arms; they must cover what its subject can be (K1)."""
    subject = checker.infer(node.subject)
    if not is_definite(subject):
        subject = _told_by_arms(checker, node)
    elif isinstance(subject, Named) and subject.name in {"Rows", "Found"}:
        subject = _as_told(node, subject)
    found: Type = NEVER
    for arm in node.arms:
        pattern(checker, arm.pattern, subject)
        found = joined(found, checker.expect(arm.body, wanted), checker.declared)
    _check_arms(checker, node, subject)
    return found


def _as_told(node: Match, subject: Named) -> Type:
    """Return the type of what comes from a table: a Result in the reference only, so the arms decide."""
    names = {arm.pattern.name for arm in node.arms if isinstance(arm.pattern, ConstructorPattern)}
    inner = subject if subject.name == "Rows" else option_of(subject.arguments[0])
    return result_of(inner) if names & {"Ok", "Error", "Err"} else inner


def _told_by_arms(checker: Checker, node: Match) -> Type:
    """Return the type that alone has the variants of the arms, where the subject does not say it."""
    for arm in node.arms:
        name = arm.pattern.name if isinstance(arm.pattern, ConstructorPattern | IdentPattern) else ""
        owners = checker.declared.names.variants.get(name, [])
        if len(owners) == 1 and name not in VARIANTS:
            type_ = checker.declared.variant(name)
            return type_.result if isinstance(type_, Callable) else type_
    return UNKNOWN


def _check_arms(checker: Checker, node: Match, subject: Type) -> None:
    coverage = Coverage(checker.declared)
    for arm in node.arms:
        if coverage.is_covered(arm.pattern):
            message = "this arm is never reached: those above it take everything that it takes"
            checker.findings.add(Code.UNREACHABLE_ARM, arm.pattern, message, None, Severity.WARNING)
        coverage.add(arm.pattern)
    missing = coverage.missing(subject)
    if missing is not None:
        place = Place(node.start, node.start + len("match"))
        advice = "Add an arm for it, or `_ => ...`."
        checker.report(Code.MISSING_VARIANT, place, f"no arm of this `match` takes `{missing}`", advice)


def pattern(checker: Checker, node: Pattern, subject: Type) -> None:
    """Type the names of a pattern, and compare it with what it is to match."""
    if isinstance(node, IdentPattern):
        binding = checker.resolution.declared.get(id(node))
        if binding is None:
            _check_variant(checker, node.name, 0, node, subject)
        else:
            checker.bind(binding, subject)
            if node.name[0].isupper() and checker.declared.is_sum(subject):
                _check_variant(checker, node.name, 0, node, subject)
    elif isinstance(node, ConstructorPattern):
        types = _check_variant(checker, node.name, len(node.fields), node, subject)
        for index, part in enumerate(node.fields):
            pattern(checker, part, types[index] if index < len(types) else UNKNOWN)
    elif isinstance(node, TuplePattern):
        _tuple(checker, node, subject)
    elif isinstance(node, LiteralPattern):
        literal = INT if isinstance(node.value, int) else STR
        if is_definite(subject) and subject != literal:
            message = f"this pattern is `{text_of(literal)}`, but what is matched is `{text_of(subject)}`"
            checker.report(Code.TYPE_MISMATCH, node, message)


def _tuple(checker: Checker, node: TuplePattern, subject: Type) -> None:
    types: tuple[Type, ...] = ()
    if isinstance(subject, Named) and subject.name == "Tuple":
        types = subject.arguments
        if len(types) != len(node.elements):
            message = f"this pattern has {len(node.elements)} elements, the tuple {len(types)}"
            checker.report(Code.TYPE_MISMATCH, node, message)
    elif is_definite(subject):
        checker.report(Code.TYPE_MISMATCH, node, f"a tuple pattern never matches `{text_of(subject)}`")
    for index, part in enumerate(node.elements):
        pattern(checker, part, types[index] if index < len(types) else UNKNOWN)


def _check_variant(
    checker: Checker, written: str, num_found: int, node: ConstructorPattern | IdentPattern, subject: Type
) -> tuple[Type, ...]:
    """Return the types of the fields of a variant as a pattern writes it."""
    name = written if written in checker.declared.names.variants else canonical(written)
    place = Place(node.start, node.start + len(written))
    variants = checker.declared.variants(subject)
    if variants is None:
        if is_definite(subject):
            message = f"the variant `{written}` never matches `{text_of(subject)}`"
            checker.report(Code.UNKNOWN_VARIANT, place, message)
            return ()
        return _fields_of_any(checker, name, num_found, node)
    if name not in variants:
        message = f"`{text_of(subject)}` has no variant `{written}`"
        checker.report_unknown(Code.UNKNOWN_VARIANT, place, message, written, variants)
        return ()
    _check_count(checker, written, len(variants[name]), num_found, node)
    return variants[name]


def _fields_of_any(
    checker: Checker, name: str, num_found: int, node: ConstructorPattern | IdentPattern
) -> tuple[Type, ...]:
    """Of what is unknown, but has a variant that only one type has."""
    num_fields = checker.declared.names.num_fields(name)
    if num_fields is not None:
        _check_count(checker, name, num_fields, num_found, node)
    type_ = checker.declared.variant(name)
    return type_.parameters if isinstance(type_, Callable) else ()


def _check_count(
    checker: Checker, name: str, expected: int, found: int, node: ConstructorPattern | IdentPattern
) -> None:
    if expected != found:
        message = f"`{name}` has {expected} field{'s' * (expected != 1)}, its pattern {found}"
        checker.report(Code.WRONG_ARGUMENT_COUNT, node, message)
