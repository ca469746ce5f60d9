"""Tables of `db` and what is chosen from them (U5)."""

from typing import Final

from mens_pipeline.language.ast.expressions import Argument, MethodCall, ObjectLit, StringLit
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.interpreter.library.tables import TABLE_METHODS
from mens_pipeline.language.types.arguments import Callee, apply
from mens_pipeline.language.types.checker import Checker, Wanted
from mens_pipeline.language.types.records import check_fields
from mens_pipeline.language.types.signatures import METHOD_TYPES, method_type
from mens_pipeline.language.types.terms import (
    INT,
    UNIT,
    UNKNOWN,
    Callable,
    Named,
    Type,
    option_of,
    result_of,
    text_of,
)

_CHAIN: Final = frozenset(("filter", "where", "order_by", "limit", "select", "using", "live", "all", "scope", "sync"))
"""Methods that give rows, to be asked on."""

_OTHERS: Final = frozenset(("query", "update", "using", "live", "first", "find_by", "upsert"))
"""Methods that only the reference knows."""

_OF_RESULTS: Final = ("unwrap", "is_ok", "is_err")
_COMBINED: Final = frozenset(("and", "or", "not"))
"""What `where` takes besides fields."""

_BY_COLUMN: Final = frozenset(("order_by", "select"))
_MANY: Final = 100
_COUNTS: Final = {
    **{name: (native.fewest, native.most) for name, native in TABLE_METHODS.items() if native.most < _MANY},
    **dict.fromkeys(("where", "limit", "using"), (1, 1)),
    "update": (2, 2),
    "order_by": (1, 2),
}
"""Method -> fewest and most arguments, where they do not vary."""


def method_call(checker: Checker, node: MethodCall, receiver: Named) -> Type:
    """Type a method of a table or of rows chosen from one; rows are a list, too."""
    record, method = receiver.arguments[0], node.method
    is_table = receiver.name == "Table"
    if not is_table and method_type("List", method) is not None and not _is_query(node):
        return _list_method(checker, node, record)
    known = (*TABLE_METHODS, *_OTHERS, *_CHAIN, *(() if is_table else (*METHOD_TYPES["List"], *_OF_RESULTS)))
    if method not in known:
        place = checker.findings.member(node.object, node, method)
        owner = f"db.{text_of(record)}" if is_table else text_of(receiver)
        message = f"`{owner}` has no method `{method}`"
        checker.report_unknown(Code.UNKNOWN_METHOD, place, message, method, known)
    _check_count(checker, node)
    for index, argument in enumerate(node.arguments):
        _check_argument(checker, node, index, argument, record)
    return _result(method, record)


def _is_query(node: MethodCall) -> bool:
    """`rows.filter({ a: 1 })` asks the database, `rows.filter(f)` goes through a list."""
    first = node.arguments[0].value if node.arguments else None
    return node.method == "filter" and isinstance(first, ObjectLit)


def _list_method(checker: Checker, node: MethodCall, record: Type) -> Type:
    function = method_type("List", node.method)
    assert isinstance(function, Callable)  # noqa: S101 - a method is called
    return apply(checker, node, Callee(function, f"`{node.method}`", {"T": record}), node.arguments)


def _check_count(checker: Checker, node: MethodCall) -> None:
    fewest, most = _COUNTS.get(node.method, (0, len(node.arguments)))
    if not fewest <= len(node.arguments) <= most:
        expected = str(most) if fewest == most else f"{fewest} to {most}"
        message = f"`{node.method}` takes {expected} argument{'s' * (most != 1)}, found {len(node.arguments)}"
        checker.report(Code.WRONG_ARGUMENT_COUNT, node, message)


def _check_argument(checker: Checker, node: MethodCall, index: int, argument: Argument, record: Type) -> None:
    fields, value = checker.declared.fields(record) or {}, argument.value
    if node.method == "insert":
        checker.expect(value, Wanted(record, f"what `insert` stores in `{text_of(record)}`"))
    elif isinstance(value, ObjectLit) and (node.method == "filter" or (node.method == "update" and index == 1)):
        check_fields(checker, value, record, fields)
    elif isinstance(value, ObjectLit) and node.method == "where":
        check_fields(checker, value, record, dict.fromkeys((*fields, *_COMBINED), UNKNOWN))
    elif node.method in _BY_COLUMN and isinstance(value, StringLit) and (node.method == "select" or index == 0):
        _check_column(checker, value, record)
    else:
        checker.expect(value, Wanted(INT, "the argument of `limit`") if node.method == "limit" else Wanted(UNKNOWN, ""))


def _check_column(checker: Checker, node: StringLit, record: Type) -> None:
    """Report a column that is no field; a search by likeness may order by `distance`."""
    known = checker.declared.readable(record) or {}
    if node.value not in known and node.value not in {"distance", "score", "rank"}:
        message = f"`{text_of(record)}` has no field `{node.value}`"
        checker.report_unknown(Code.UNKNOWN_FIELD, node, message, node.value, known)


def _result(method: str, record: Type) -> Type:
    """Rows, and what was found, may be used as they are or, as the reference has them, as a Result."""
    if method in _CHAIN or method == "unwrap":
        return Named("Rows", (record,))
    return {
        "insert": result_of(UNKNOWN),
        "delete": result_of(UNIT),
        "update": result_of(UNIT),
        "get": Named("Found", (record,)),
        "find": Named("Found", (record,)),
        "first": option_of(record),
    }.get(method, UNKNOWN)
