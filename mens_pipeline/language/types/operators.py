"""Literals, names and operators (O2-O7, O10-O12)."""

from typing import Final

from mens_pipeline.language.ast.expressions import (
    Binary,
    BoolLit,
    DecimalLit,
    Expr,
    FloatLit,
    Ident,
    IntLit,
    ListLit,
    StringLit,
    Try,
    TupleLit,
    Unary,
    With,
    WorkflowVersion,
)
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.types.checker import Checker, Wanted
from mens_pipeline.language.types.fitting import is_definite, joined
from mens_pipeline.language.types.terms import (
    BOOL,
    DEC,
    FLOAT,
    INT,
    NEVER,
    NUMBERS,
    STR,
    UNKNOWN,
    Named,
    Type,
    list_of,
    settled,
    text_of,
)

_SIGNS: Final = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "Mod": "%",
    "Lt": "<",
    "Gt": ">",
    "Lte": "<=",
    "Gte": ">=",
    "And": "and",
    "Or": "or",
}
_ORDERINGS: Final = frozenset(("Lt", "Gt", "Lte", "Gte"))
_LITERALS: Final[dict[type, Type]] = {
    IntLit: INT,
    FloatLit: FLOAT,
    DecimalLit: DEC,
    StringLit: STR,
    BoolLit: BOOL,
    WorkflowVersion: INT,
}


def literal(_checker: Checker, node: Expr, _expected: Type) -> Type:
    """Type a literal."""
    return _LITERALS[type(node)]


def name(checker: Checker, node: Ident, _expected: Type) -> Type:
    """Type a name; one that means nothing has been reported."""
    binding = checker.used(node)
    return UNKNOWN if binding is None else checker.type_of(binding)


def list_literal(checker: Checker, node: ListLit, expected: Type) -> Type:
    """Type a list; lists may mix types (V7), but not where their type is written."""
    is_known = isinstance(expected, Named) and expected.name == "List"
    element = expected.arguments[0] if isinstance(expected, Named) and is_known else UNKNOWN
    if is_definite(element):
        wanted = Wanted(element, "an element of this list")
        for part in node.elements:
            checker.expect(part, wanted)
        return expected
    found: Type = NEVER
    for part in node.elements:
        found = joined(found, checker.infer(part), checker.declared)
    return list_of(found)


def tuple_literal(checker: Checker, node: TupleLit, _expected: Type) -> Type:
    """Type a tuple."""
    return Named("Tuple", tuple([checker.infer(part) for part in node.elements]))


def binary(checker: Checker, node: Binary, _expected: Type) -> Type:
    """Type an infix operator other than `|>`; a long chain is gone down without recursion."""
    chain: list[Binary] = []
    left: Expr = node
    while isinstance(left, Binary) and left.op != "Pipe":
        chain.append(left)
        left = left.left
    type_ = checker.infer(left)
    for link in reversed(chain):
        # A record that is compared with a struct has its fields, or never equals it.
        hint = type_ if link.op in {"Is", "Isnt"} else UNKNOWN
        type_ = operation(checker, link, type_, checker.infer(link.right, hint))
    return type_


def operation(checker: Checker, node: Binary, left: Type, right: Type) -> Type:
    """Return the type of an operation."""
    if node.op in {"Is", "Isnt"}:
        return BOOL
    if node.op in {"And", "Or"}:
        for operand, type_ in ((node.left, left), (node.right, right)):
            if is_definite(type_) and type_ != BOOL:
                message = f"`{_SIGNS[node.op]}` takes bools, found `{text_of(type_)}`"
                checker.report(Code.TYPE_MISMATCH, operand, message)
        return BOOL
    is_right = _is_ordered(left, right) if node.op in _ORDERINGS else _is_computed(node.op, left, right)
    if not is_right:
        found = f"`{text_of(left)}` and `{text_of(right)}`"
        checker.report(Code.TYPE_MISMATCH, node, f"`{_SIGNS[node.op]}` does not take {found}")
    return BOOL if node.op in _ORDERINGS else _computed(node.op, left, right)


def _is_ordered(left: Type, right: Type) -> bool:
    """Return numbers among themselves, strings, decimals (O4)."""
    known = [type_ for type_ in (left, right) if is_definite(type_)]
    if any(type_ not in (INT, FLOAT, STR, DEC) for type_ in known):
        return False
    return len(known) < 2 or left == right or (left in NUMBERS and right in NUMBERS)  # noqa: PLR2004 - both of them


def _is_computed(op: str, left: Type, right: Type) -> bool:
    """Numbers, decimals, and for `+` strings with anything (O2, O3)."""
    if op == "Add" and (STR in (left, right) or not (is_definite(left) and is_definite(right))):
        return True
    known = [type_ for type_ in (left, right) if is_definite(type_)]
    if any(type_ not in (INT, FLOAT, DEC) for type_ in known):
        return False
    return len(known) < 2 or (left == DEC) == (right == DEC)  # noqa: PLR2004 - both of them


def _computed(op: str, left: Type, right: Type) -> Type:
    if op == "Add" and STR in (left, right):
        return STR
    if left == right and left in (INT, FLOAT, DEC):
        return left
    if left in NUMBERS and right in NUMBERS:
        return FLOAT
    return UNKNOWN


def unary(checker: Checker, node: Unary, _expected: Type) -> Type:
    """`-` and `not`."""
    found = checker.infer(node.operand)
    if node.op == "Not":
        checker.compare(node.operand, found, Wanted(BOOL, "the operand of `not`"))
        return BOOL
    if is_definite(found) and found not in (INT, FLOAT, DEC):
        checker.report(Code.TYPE_MISMATCH, node, f"`-` takes a number, found `{text_of(found)}`")
        return UNKNOWN
    return found


def try_(checker: Checker, node: Try, _expected: Type) -> Type:
    """`?`: the value inside; what is not there is returned from the function, which must be able to (O10)."""
    found = checker.infer(node.operand)
    if isinstance(found, Named) and found.name in {"Rows", "Found"}:
        return found if found.name == "Rows" else UNKNOWN
    if not isinstance(found, Named) or found.name not in {"Option", "Result"}:
        if is_definite(found):
            message = f"`?` takes an `Option` or a `Result`, found `{text_of(found)}`"
            checker.report(Code.TYPE_MISMATCH, node, message, "Remove the `?`.")
        return UNKNOWN
    result = checker.result.type
    if is_definite(result) and not (isinstance(result, Named) and result.name == found.name):
        message = f"`?` returns a `{found.name}` early, but {checker.result.reason} is `{text_of(result)}`"
        checker.report(Code.TRY_OUTSIDE_RESULT, node, message, f"Return a `{found.name}`, or use `match`.")
    return settled(found.arguments[0])


def with_(checker: Checker, node: With, expected: Type) -> Type:
    """`with`: the value of its operand (O12)."""
    found = checker.infer(node.operand, expected)
    checker.infer(node.options)
    return found
